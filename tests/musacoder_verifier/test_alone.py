"""What becomes of a verification that found too little memory on its device."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.facts import StageEvent
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.slots import Slots
from musacoder_verifier.stages.side import DeviceFull, InfraFault, StageStop, Turns
from musacoder_verifier.verdict import Failure
from musacoder_verifier.verification import Verification
from musacoder_verifier.worker import Worker

FULL = Failure("runtime_error", "correctness", "out of memory")


class _WantsTooMuch(Verification):
    """Finds the device full, with others and alone. `alone` is what happens meanwhile."""

    alone: Callable[[], Awaitable[None]]

    async def build(self) -> bool:
        return True

    async def _run_pair(self, turns: Turns | None = None) -> None:
        if turns is None:
            raise DeviceFull(FULL)
        await self.alone()
        turns.full = True
        raise StageStop(FULL)


def _wanting(
    worker: Worker, tmp_path: Path, slots: Slots, events: list[StageEvent]
) -> _WantsTooMuch:
    settings = VerifierSettings(
        python=sys.executable, cache_dir=tmp_path, lock_folder=tmp_path / "locks"
    )
    return _WantsTooMuch(
        worker, settings, backend("cpu"), Reference(""), Candidate(""), VerifyOptions(),
        events.append, slots,
    )  # fmt: skip


@pytest.mark.asyncio(loop_scope="session")
async def test_it_is_blamed_only_alone_and_says_that_it_waits(
    worker: Worker, tmp_path: Path
) -> None:
    slots, events = Slots(1, None), list[StageEvent]()
    run = _wanting(worker, tmp_path, slots, events)
    inside = 1

    async def alone() -> None:
        assert inside == 0

    run.alone = alone
    async with slots.on_device("cpu", lambda: None):
        task = asyncio.create_task(run.run())
        while not events:
            await asyncio.sleep(0)
        assert (events[0].state, events[0].detail) == ("waiting", {"device": "cpu"})
        inside = 0
    await task
    assert run.facts.failure == FULL


@pytest.mark.asyncio(loop_scope="session")
async def test_what_it_lacks_in_company_is_nobodys_fault(worker: Worker, tmp_path: Path) -> None:
    slots = Slots(1, None, shut_seconds=0.05)
    run = _wanting(worker, tmp_path, slots, [])

    async def alone() -> None:
        async with slots.on_device("cpu", lambda: None):
            pass

    run.alone = alone
    with pytest.raises(InfraFault, match="beside other verifications"):
        await run.run()
    assert run.facts.failure is None


@pytest.mark.asyncio(loop_scope="session")
async def test_it_gives_up_where_others_stay(worker: Worker, tmp_path: Path) -> None:
    slots = Slots(1, None, shut_seconds=0.01)
    run = _wanting(worker, tmp_path, slots, [])
    async with slots.on_device("cpu", lambda: None):
        with pytest.raises(InfraFault, match="did not leave it"):
            await run.run()
