"""Jobs: states, order, bounds, cancel."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from musacoder_lsp.jobs.job import Job, JobStatus, SiteKey
from musacoder_lsp.jobs.runner import JobRunner


class Bench:
    """Jobs that run until they are told to end."""

    def __init__(self, slots: int = 2) -> None:
        self.seen: list[tuple[str, str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.started: list[str] = []
        self.cleaned: list[str] = []
        self.runner = JobRunner(self._execute, self._changed, slots)

    async def _execute(self, job: Job) -> JobStatus:
        self.started.append(job.title)
        try:
            if job.title == "defect":
                raise ValueError("broken")
            await self.gates.setdefault(job.title, asyncio.Event()).wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned.append(job.title)
        return replace(job.status, state="done")

    def _changed(self, job: Job) -> None:
        self.seen.append((job.title, job.status.state))

    def submit(self, title: str, site: str = "s") -> Job:
        status = JobStatus("queued", self.runner.now())
        return self.runner.submit(
            Job(SiteKey("d", site), "generate", f"why {title}", status, title)
        )

    async def until_started(self, title: str) -> None:
        while title not in self.started:
            await asyncio.sleep(0)


async def test_the_latest_of_many_runs_next() -> None:
    bench = Bench()
    first, second, third = (bench.submit(title) for title in "abc")
    await bench.until_started("a")
    assert second.status.state == "cancelled" and second.status.detail == "replaced: why c"
    bench.gates["a"].set()
    await bench.runner.wait(first.id)
    await bench.until_started("c")
    assert bench.started == ["a", "c"] and first.status.state == "done"
    assert bench.runner.active(SiteKey("d", "s")) is third
    await bench.runner.close()


async def test_no_more_than_the_slots_run_at_once() -> None:
    bench = Bench(slots=2)
    jobs = [bench.submit(str(n), site=str(n)) for n in range(4)]
    await bench.until_started("1")
    assert bench.started == ["0", "1"]
    assert [job.status.state for job in jobs[2:]] == ["queued", "queued"]
    bench.gates["0"].set()
    await bench.until_started("2")
    await bench.runner.close()
    assert all(job.ended for job in jobs) and bench.cleaned == ["0", "1", "2"]


async def test_cancel_shows_at_once_and_cleans_up() -> None:
    bench = Bench()
    job = bench.submit("a")
    await bench.until_started("a")
    assert bench.runner.cancel(job.id) and job.status.state == "cancelled"
    assert bench.cleaned == []
    await bench.runner.wait(job.id)
    assert bench.cleaned == ["a"] and not bench.runner.cancel(job.id)
    assert bench.seen[-1] == ("a", "cancelled") and bench.runner.all_active() == []


async def test_cancel_before_the_first_step() -> None:
    bench = Bench()
    job = bench.submit("a")
    assert bench.runner.cancel(job.id)
    await bench.runner.wait(job.id)
    assert bench.started == [] and bench.runner.active(job.key) is None


async def test_a_defect_ends_as_failed_and_the_next_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    bench = Bench()
    job = bench.submit("defect")
    follower = bench.submit("b")
    await bench.until_started("b")
    assert job.status.state == "failed" and "broken" in job.status.detail
    bench.gates["b"].set()
    await bench.runner.wait(follower.id)
    assert follower.status.state == "done"


async def test_late_updates_of_an_ended_job_are_dropped() -> None:
    bench = Bench()
    job = bench.submit("a")
    bench.runner.cancel(job.id)
    bench.runner.update(job, replace(job.status, state="compiling"))
    assert job.status.state == "cancelled"
    await bench.runner.close()
    with pytest.raises(RuntimeError):
        bench.submit("b")
