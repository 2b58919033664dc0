"""Runs Jobs as tasks of the loop: a queue per Site, a bound on how many run at once, cancel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from musacoder_lsp.jobs.job import Job, JobState, JobStatus, SiteKey
from musacoder_lsp.jobs.queue import OperationQueue

logger = logging.getLogger(__name__)

Execute = Callable[[Job], Awaitable[JobStatus]]
OnChange = Callable[[Job], None]

# Ended Jobs whose state can still be asked for.
_REMEMBERED = 256


class JobRunner:
    """`execute` does the work and returns the status that the Job ends with; what it raises
    becomes `failed`. `on_change` is called at each change of state, on the loop."""

    def __init__(self, execute: Execute, on_change: OnChange, slots: int = 2) -> None:
        self._execute = execute
        self._on_change = on_change
        self._slots = asyncio.Semaphore(slots)
        self._queues: dict[SiteKey, OperationQueue[Job]] = {}
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def get(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def active(self, key: SiteKey) -> Job | None:
        """The Job that runs, or waits, on a Site."""
        queue = self._queues.get(key)
        return (queue.running or queue.waiting) if queue else None

    def all_active(self) -> list[Job]:
        return [job for job in self._jobs.values() if not job.ended]

    def submit(self, job: Job) -> Job:
        """Enqueues; a Job that still waits on the same Site ends as cancelled."""
        if self._closing:
            raise RuntimeError("the server is shutting down")
        self._remember(job)
        queue = self._queues.setdefault(job.key, OperationQueue())
        replaced = queue.request(job, job.cause)
        if replaced is not None:
            self._end(replaced, "cancelled", f"replaced: {job.cause}")
        self._on_change(job)
        self._start_next(job.key)
        return job

    def cancel(self, job_id: str, why: str = "cancelled by the user") -> bool:
        """False when there is no such Job or it has ended. The editor sees `cancelled` at once;
        the work's processes are dead when its task has ended."""
        job = self._jobs.get(job_id)
        if job is None or job.ended:
            return False
        queue = self._queues[job.key]
        waiting = queue.withdraw(job)
        self._end(job, "cancelled", why)
        if waiting:
            self._forget_queue(job.key)
        elif (task := self._tasks.get(job_id)) is not None:
            task.cancel()
        return True

    def update(self, job: Job, status: JobStatus) -> None:
        """A new state of a running Job; what arrives after its end is dropped."""
        if not job.ended and status != job.status:
            job.status = status
            self._on_change(job)

    async def wait(self, job_id: str) -> None:
        """Until nothing of the Job runs any more."""
        task = self._tasks.get(job_id)
        if task is not None:
            await asyncio.wait({task})

    async def close(self) -> None:
        """Cancels everything and waits until it is gone."""
        self._closing = True
        for job in self.all_active():
            self.cancel(job.id, "the server is shutting down")
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    def _start_next(self, key: SiteKey) -> None:
        queue = self._queues[key]
        requested = queue.start()
        if requested is None:
            self._forget_queue(key)
            return
        job = requested.operation
        task = asyncio.get_running_loop().create_task(self._run(job), name=f"job {job.id}")
        self._tasks[job.id] = task
        # Also when the task is cancelled before its first step, which runs none of its body.
        task.add_done_callback(lambda _: self._complete(job))

    async def _run(self, job: Job) -> None:
        try:
            # The answer with the Job's id goes out first.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            async with self._slots:
                status = await self._execute(job)
        except asyncio.CancelledError:
            self._end(job, "cancelled", "cancelled")
        except Exception as problem:
            logger.exception("job %s (%s) failed", job.id, job.title)
            self._end(job, "failed", f"Internal error: {problem or type(problem).__name__}.")
        else:
            self.update(job, status)

    def _complete(self, job: Job) -> None:
        self._tasks.pop(job.id, None)
        self._end(job, "cancelled", "cancelled")
        queue = self._queues[job.key]
        queue.complete()
        self._start_next(job.key)

    def _end(self, job: Job, state: JobState, detail: str) -> None:
        self.update(job, replace(job.status, state=state, since=self.now(), detail=detail))

    def _forget_queue(self, key: SiteKey) -> None:
        queue = self._queues.get(key)
        if queue is not None and queue.running is None and queue.waiting is None:
            del self._queues[key]

    def _remember(self, job: Job) -> None:
        self._jobs[job.id] = job
        if len(self._jobs) > _REMEMBERED:
            for old in [item for item in self._jobs.values() if item.ended]:
                if len(self._jobs) <= _REMEMBERED:
                    break
                del self._jobs[old.id]
