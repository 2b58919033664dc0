"""Work-done progress: one per Job, begun late, ended on every path."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.jobs.job import Job
from musacoder_lsp.lens import job_text

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

logger = logging.getLogger(__name__)

# A Job that ends sooner shows no progress: `begin` and `end` back to back leave a spinner in
# VS Code (vscode#134979). Seconds.
_GRACE = 0.3
_PREFIX = "musacoder-"


@dataclass(slots=True)
class _Shown:
    task: asyncio.Task[None]
    begun: bool = False
    ended: bool = False
    message: str = ""


class ProgressBook:
    def __init__(self, ls: KernelServer) -> None:
        self._ls = ls
        self._shown: dict[str, _Shown] = {}

    def job_changed(self, job: Job) -> None:
        if not self._ls.client.work_done_progress:
            return
        shown = self._shown.get(job.id)
        if shown is None:
            if not job.ended:
                self._shown[job.id] = _Shown(asyncio.create_task(self._begin(job)))
        elif job.ended:
            self._end(job, shown)
        else:
            self._report(job, shown)

    def end_all(self) -> None:
        for job_id in list(self._shown):
            job = self._ls.session.runner.get(job_id)
            if job is not None:
                self._end(job, self._shown[job_id])

    async def _begin(self, job: Job) -> None:
        await asyncio.sleep(_GRACE)
        params = types.WorkDoneProgressCreateParams(token=_PREFIX + job.id)
        try:
            await self._ls.ask(types.WINDOW_WORK_DONE_PROGRESS_CREATE, params)
        except Exception as problem:
            logger.info("the client takes no progress: %s", problem)
            return
        shown = self._shown.get(job.id)
        if shown is None or job.ended:
            return
        shown.begun = True
        shown.message = job_text(job, self._ls.now())
        title = f"Kernel for {job.title}" if job.kind != "verify" else f"Verifying {job.title}"
        self._notify(
            job,
            types.WorkDoneProgressBegin(title=title, cancellable=True, message=shown.message),
        )

    def _report(self, job: Job, shown: _Shown) -> None:
        message = job_text(job, self._ls.now())
        if shown.begun and message != shown.message:
            shown.message = message
            self._notify(job, types.WorkDoneProgressReport(cancellable=True, message=message))

    def tick(self) -> None:
        """Elapsed times move on."""
        for job_id, shown in self._shown.items():
            job = self._ls.session.runner.get(job_id)
            if job is not None and not job.ended:
                self._report(job, shown)

    def _end(self, job: Job, shown: _Shown) -> None:
        del self._shown[job.id]
        shown.task.cancel()
        if shown.begun:
            self._notify(job, types.WorkDoneProgressEnd(message=job.status.state))

    def _notify(
        self,
        job: Job,
        value: types.WorkDoneProgressBegin
        | types.WorkDoneProgressReport
        | types.WorkDoneProgressEnd,
    ) -> None:
        self._ls.progress(types.ProgressParams(token=_PREFIX + job.id, value=value))


def job_of_token(token: int | str) -> str | None:
    text = str(token)
    return text.removeprefix(_PREFIX) if text.startswith(_PREFIX) else None
