"""One side of a Verdict: a child that is asked, and whose silence or death becomes a Failure.

Whose fault it is depends on the side alone: what the candidate child does is never our fault, and
what the reference child does is never the Candidate's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Failure, Status
from musacoder_verifier.worker import Child, ChildDied, ChildTimeout

_DETAIL = 4000
# A Reference is said to take too long where its own code took so much of a stage's time. Both sides
# and the work on their outputs share that time, and a check calls the Reference many times.
_REFERENCE_SHARE = 0.25


class StageStop(Exception):
    """Verification ends here, with this Failure. `lost`: the side's device does nothing more, and
    its process has ended."""

    def __init__(self, failure: Failure, lost: bool = False) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.lost = lost


class DeviceFull(Exception):
    """The device had no memory left for a side, which may be the other side's doing, or that of
    somebody else; `failure` is what it would be called if it is not."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class InfraFault(Exception):
    """Our fault or the machine's; may be retried."""


@dataclass
class Deadline:
    """When the present stage runs out. Shared by both sides."""

    stage: str
    seconds: float
    ends: float

    @classmethod
    def start(cls, stage: str, seconds: float) -> Deadline:
        return cls(stage, seconds, time.monotonic() + seconds)

    def left(self) -> float:
        return max(0.0, self.ends - time.monotonic())


class Turns:
    """Which of two sides may hold the device's memory, where both do not fit on it together."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.holder: object | None = None
        self.full = False  # the memory did not even last for one side alone

    @asynccontextmanager
    async def hold(self, side: object, rest: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
        """`side` is alone on the device; `rest` gives its memory back. Nests."""
        if self.holder is side:
            yield
            return
        async with self.lock:
            self.holder = side
            try:
                yield
                await rest()
            finally:
                self.holder = None


class CandidateSide:
    """The candidate child. Everything that it says is untrusted. With `turns`, it is alone on the
    device whenever it is asked, and gives its memory back afterwards."""

    def __init__(self, child: Child, path: str, turns: Turns | None = None) -> None:
        self.child = child
        self._path = path
        self._turns = turns

    async def ask(
        self, message: dict[str, Any], deadline: Deadline, doing: str
    ) -> Mapping[str, Any]:
        """The answer to `message`; `doing` completes "while ...". Raises StageStop, InfraFault, and
        DeviceFull unless it was alone."""
        async with self.turn(deadline):
            return await self._ask(message, deadline, doing)

    @asynccontextmanager
    async def turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """Keep the device for several questions."""
        if self._turns is None:
            yield
            return
        async with self._turns.hold(
            self, lambda: self._ask({"op": "rest"}, deadline, "giving memory back")
        ):
            yield

    async def _ask(
        self, message: dict[str, Any], deadline: Deadline, doing: str
    ) -> Mapping[str, Any]:
        await self.child.send(message)
        return await self.answer(deadline, doing)

    async def answer(self, deadline: Deadline, doing: str) -> Mapping[str, Any]:
        """The next message of the child."""
        try:
            answer = await self.child.receive(deadline.left())
        except ChildTimeout as error:
            raise self._stop(
                "timeout",
                deadline,
                f"the Candidate did not finish {doing} within the {deadline.seconds:g} s of the "
                f"stage {deadline.stage}",
                error.stderr_tail,
            ) from error
        except ChildDied as error:
            if error.reason not in (None, "memory", "processes", "protocol"):
                raise InfraFault(str(error)) from error
            sentence = str(error).replace("the process", "the Candidate's process", 1)
            raise self._stop(
                "runtime_error", deadline, f"{sentence} while {doing}", error.stderr_tail
            ) from error
        problem = answer.get("failure") or answer.get("error")
        if problem is not None:
            stop = self._stop(
                "runtime_error",
                deadline,
                _text(problem, "message") or f"the Candidate failed while {doing}",
                _text(problem, "traceback"),
                problem.get("line") if isinstance(problem, Mapping) else None,
            )
            if _says_full(problem):
                if self._turns is None:
                    raise DeviceFull(stop.failure)
                self._turns.full = True
            raise StageStop(stop.failure, lost=answer.get("last") is True)
        return answer

    def nonsense(self, deadline: Deadline, error: Exception) -> StageStop:
        """The Candidate's process sent what no honest one sends."""
        return self._stop(
            "runtime_error",
            deadline,
            "the Candidate's process answered with what is no result",
            f"{type(error).__name__}: {error}",
        )

    def _stop(
        self, status: Status, deadline: Deadline, message: str, detail: str, line: Any = None
    ) -> StageStop:
        place = line if isinstance(line, int) else None
        return StageStop(
            Failure(status, deadline.stage, message, detail[-_DETAIL:], self._path, place)
        )


class _UserTime:
    """How long the user's own code took of a stage's time, as its child tells it."""

    def __init__(self) -> None:
        self._deadline: Deadline | None = None
        self._before = 0.0  # when the stage began
        self._told = 0.0
        self._noted = False
        self._since: float | None = None  # it is running

    def within(self, deadline: Deadline) -> None:
        if deadline is not self._deadline:
            self._deadline, self._before, self._noted = deadline, self._told, False

    def note(self, told: Mapping[str, Any]) -> None:
        self._noted = True
        self._told = number(told["seconds"])
        self._since = time.monotonic() if told["running"] else None

    def seconds(self) -> float | None:
        """None where nothing was told in this stage."""
        if not self._noted:
            return None
        present = time.monotonic() - self._since if self._since is not None else 0.0
        return self._told - self._before + present


class ReferenceSide:
    """The reference child: the user's own code, and our judge. It may be asked while it still works
    on an earlier question: they are put to it one after the other."""

    def __init__(self, child: Child, reference: Reference, turns: Turns | None = None) -> None:
        self.child = child
        self._reference = reference
        self._turns = turns
        self._turn = asyncio.Lock()
        self._user_time = _UserTime()

    async def ask(
        self, message: dict[str, Any], deadline: Deadline, *, runs_user_code: bool = True
    ) -> dict[str, Any]:
        """The answer to `message`. Raises StageStop with a reference_error, or with an infra_error
        where time ran out that others took; InfraFault, and DeviceFull unless it was alone on the
        device."""
        async with self.turn(deadline):
            return await self._ask(message, deadline, runs_user_code=runs_user_code)

    @asynccontextmanager
    async def turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """Keep the device for several questions."""
        if self._turns is None:
            yield
            return
        async with self._turns.hold(
            self, lambda: self._ask({"op": "rest"}, deadline, runs_user_code=False)
        ):
            yield

    async def _ask(
        self, message: dict[str, Any], deadline: Deadline, *, runs_user_code: bool
    ) -> dict[str, Any]:
        try:
            async with self._turn:
                await self.child.send(message)
                answer = await self._answer(deadline)
        except ChildTimeout as error:
            failure = self._out_of_time(deadline, error.stderr_tail, runs_user_code)
            raise StageStop(failure) from error
        except ChildDied as error:
            ours = error.reason not in (None, "memory", "processes")
            if ours or not runs_user_code:
                raise InfraFault(str(error)) from error
            sentence = str(error).replace("the process", "the Reference's process", 1)
            raise StageStop(self._failure(sentence, error.stderr_tail)) from error
        if answer.get("error") is not None:
            raise InfraFault(_text(answer["error"], "message") or "the judge failed")
        problem = answer.get("failure")
        if problem is not None:
            failure = self._failure(problem["message"], problem["detail"], problem.get("line"))
            if _says_full(problem):
                if self._turns is None:
                    raise DeviceFull(failure)
                self._turns.full = True
            raise StageStop(failure)
        return answer

    async def _answer(self, deadline: Deadline) -> dict[str, Any]:
        """The next message that is an answer."""
        self._user_time.within(deadline)
        while True:
            message = await self.child.receive(deadline.left())
            if "user_code" not in message:
                return message
            self._user_time.note(message["user_code"])

    def _out_of_time(self, deadline: Deadline, detail: str, runs_user_code: bool) -> Failure:
        spent = self._user_time.seconds()
        # Timed samples tell nothing, so as not to disturb the clocks.
        if spent is None and runs_user_code:
            return self._failure(
                f"the Reference did not finish within the {deadline.seconds:g} s of the stage "
                f"{deadline.stage}",
                detail,
            )
        if spent is not None and spent >= _REFERENCE_SHARE * deadline.seconds:
            return self._failure(
                f"the Reference did not finish within {deadline.seconds:g} s, of which its own "
                f"code took {spent:.1f} s",
                detail,
            )
        return Failure(
            "infra_error",
            deadline.stage,
            f"the stage {deadline.stage} did not end within {deadline.seconds:g} s, of which the "
            f"Reference's own code took {spent or 0.0:.1f} s: copying and comparing the outputs "
            "takes longer than that, or the machine is busy; raise the stage timeout",
            detail[-_DETAIL:],
        )

    def _failure(self, message: str, detail: str, line: int | None = None) -> Failure:
        return reference_failure(self._reference, message, detail, line)


def reference_failure(reference: Reference, message: str, detail: str, line: int | None) -> Failure:
    """A reference_error on the user's own line; `line` is 1-based in the Reference."""
    file, place = reference.path, None
    if line is not None and 0 < line <= len(reference.lines):
        origin = reference.lines[line - 1]
        if origin is not None:
            file, place = origin.path, origin.line + 1
    elif line is not None and not reference.lines:
        place = line
    return Failure("reference_error", "reference", message, detail[-_DETAIL:], file, place)


def _says_full(problem: Any) -> bool:
    return isinstance(problem, Mapping) and problem.get("device_full") is True


def _text(problem: Any, key: str) -> str:
    value = problem.get(key) if isinstance(problem, Mapping) else None
    return value if isinstance(value, str) else ""


def started(
    asked: Coroutine[Any, Any, dict[str, Any]],
) -> asyncio.Future[dict[str, Any]]:
    """Asks now. Where nobody comes to the answer, a failure in it stays unread."""
    task = asyncio.ensure_future(asked)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def number(value: Any) -> float:
    """A number that a child sent; TypeError for anything else, infinity for NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return math.inf if math.isnan(value) else float(value)
