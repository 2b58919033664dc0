"""One side of a Verdict: a child that is asked, and whose silence or death becomes a Failure.

Whose fault it is depends on the side alone: what the candidate child does is never our fault, and
what the reference child does is never the Candidate's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Failure, Status
from musacoder_verifier.worker import Child, ChildDied, ChildTimeout

_DETAIL = 4000


class StageStop(Exception):
    """Verification ends here, with this Failure."""

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


class CandidateSide:
    """The candidate child. Everything that it says is untrusted."""

    def __init__(self, child: Child, path: str) -> None:
        self.child = child
        self._path = path

    async def ask(
        self, message: dict[str, Any], deadline: Deadline, doing: str
    ) -> Mapping[str, Any]:
        """The answer to `message`; `doing` completes "while ...". Raises StageStop, InfraFault."""
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
            raise self._stop(
                "runtime_error",
                deadline,
                _text(problem, "message") or f"the Candidate failed while {doing}",
                _text(problem, "traceback"),
                problem.get("line") if isinstance(problem, Mapping) else None,
            )
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


class ReferenceSide:
    """The reference child: the user's own code, and our judge. It may be asked while it still works
    on an earlier question: they are put to it one after the other."""

    def __init__(self, child: Child, reference: Reference) -> None:
        self.child = child
        self._reference = reference
        self._turn = asyncio.Lock()

    async def ask(
        self, message: dict[str, Any], deadline: Deadline, *, runs_user_code: bool = True
    ) -> dict[str, Any]:
        """The answer to `message`. Raises StageStop with a reference_error, or InfraFault."""
        try:
            async with self._turn:
                await self.child.send(message)
                answer = await self.child.receive(deadline.left())
        except ChildTimeout as error:
            if not runs_user_code:
                raise InfraFault(f"judging took more than {deadline.seconds:g} s") from error
            sentence = f"the Reference did not finish within {deadline.seconds:g} s"
            raise StageStop(self._failure(sentence, error.stderr_tail)) from error
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
            raise StageStop(
                self._failure(problem["message"], problem["detail"], problem.get("line"))
            )
        return answer

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


def _text(problem: Any, key: str) -> str:
    value = problem.get(key) if isinstance(problem, Mapping) else None
    return value if isinstance(value, str) else ""


def number(value: Any) -> float:
    """A number that a child sent; TypeError for anything else, infinity for NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return math.inf if math.isnan(value) else float(value)
