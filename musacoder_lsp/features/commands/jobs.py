"""`musacoder.jobs`: what runs and waits now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from musacoder_lsp.lens import job_text

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def jobs(ls: KernelServer, arguments: Sequence[Any]) -> dict[str, Any]:
    now = ls.now()
    return {
        "jobs": [
            {
                "job": job.id,
                "uri": job.key.document,
                "site": job.key.site,
                "title": job.title,
                "state": job.status.state,
                "text": job_text(job, now),
                "cause": job.cause,
            }
            for job in ls.session.runner.all_active()
        ]
    }
