"""`musacoder/status`: each change of a Job, for clients that asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from musacoder_lsp.jobs.job import Job
from musacoder_lsp.lens import job_text

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

METHOD = "musacoder/status"


def send_status(ls: KernelServer, job: Job) -> None:
    """Sent only to clients with the capability `experimental.musacoderStatus`, or the
    initialization option `status`: others may complain about a method that they do not know."""
    if not ls.client.status:
        return
    now = ls.now()
    ls.protocol.notify(
        METHOD,
        {
            "job": job.id,
            "uri": job.key.document,
            "site": job.key.site,
            "title": job.title,
            "kind": job.kind,
            "cause": job.cause,
            "state": job.status.state,
            "text": job_text(job, now),
            "turn": job.status.turn,
            "of": job.status.of,
            "detail": job.status.detail,
            "seconds": round(now - job.status.since, 3),
        },
    )
