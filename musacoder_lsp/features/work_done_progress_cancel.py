"""`window/workDoneProgress/cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features.progress import job_of_token

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def work_done_progress_cancel(ls: KernelServer, params: types.WorkDoneProgressCancelParams) -> None:
    job = job_of_token(params.token)
    if job is not None:
        ls.session.cancel(job)
