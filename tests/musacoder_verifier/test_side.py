"""Whose fault it is when a stage's time is up: the Reference's, or that of the work around it."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest
from musacoder_runtime.user_time import UserTime
from musacoder_verifier.reference import Reference
from musacoder_verifier.stages.side import Deadline, ReferenceSide, StageStop
from musacoder_verifier.verdict import Failure
from musacoder_verifier.worker import Child, ChildTimeout


class _Told:
    """A child that says these messages and then nothing more."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = deque(messages)

    async def send(self, message: dict[str, Any]) -> None:
        pass

    async def receive(self, timeout: float | None = None) -> dict[str, Any]:
        if not self._messages:
            raise ChildTimeout(60.0, "")
        return self._messages.popleft()


def _note(seconds: float, running: bool = False) -> dict[str, Any]:
    return {"user_code": {"seconds": seconds, "running": running}}


def _side(*messages: dict[str, Any]) -> ReferenceSide:
    return ReferenceSide(cast(Child, _Told(*messages)), Reference(""))


async def _failure(side: ReferenceSide, deadline: Deadline, **asked: bool) -> Failure:
    with pytest.raises(StageStop) as stopped:
        await side.ask({"op": "trial"}, deadline, **asked)
    return stopped.value.failure


async def test_time_that_the_work_on_outputs_took_is_not_the_references() -> None:
    deadline = Deadline.start("correctness", 60.0)
    failure = await _failure(_side(_note(0.0, True), _note(0.4)), deadline)
    assert (failure.status, failure.stage) == ("infra_error", "correctness")
    assert "own code took 0.4 s" in failure.message


async def test_a_reference_that_took_the_time_is_told_so() -> None:
    failure = await _failure(_side(_note(31.0)), Deadline.start("correctness", 60.0))
    assert failure.status == "reference_error"
    assert "its own code took 31.0 s" in failure.message


async def test_a_reference_that_still_runs_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr("musacoder_verifier.stages.side.time.monotonic", lambda: moment)
    side = _side(_note(0.0, True), {"digest": "x"})
    deadline = Deadline.start("correctness", 60.0)
    assert await side.ask({"op": "trial"}, deadline) == {"digest": "x"}
    moment = 160.0
    assert (await _failure(side, deadline)).status == "reference_error"


async def test_each_stage_counts_from_its_own_start() -> None:
    side = _side(_note(40.0), {"digest": "x"}, _note(41.0))
    await side.ask({"op": "trial"}, Deadline.start("correctness", 60.0))
    failure = await _failure(side, Deadline.start("timing", 60.0))
    assert failure.status == "infra_error" and "took 1.0 s" in failure.message


async def test_where_nothing_is_told_the_question_decides() -> None:
    deadline = Deadline.start("timing", 60.0)
    assert (await _failure(_side(), deadline)).status == "reference_error"
    assert (await _failure(_side(), deadline, runs_user_code=False)).status == "infra_error"


def test_user_code_within_user_code_is_told_once() -> None:
    told: list[dict[str, Any]] = []
    spent = UserTime(told.append)
    with pytest.raises(ValueError), spent.running(), spent.running():
        raise ValueError
    assert [note["user_code"]["running"] for note in told] == [True, False]
    assert told[-1]["user_code"]["seconds"] == spent.seconds > 0
