"""`musacoder.cancel`: `{job}`, or `{uri, site}` for whatever runs there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from musacoder_lsp.features.commands.arguments import BadArguments, site_of, target
from musacoder_lsp.jobs.job import SiteKey

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def cancel(ls: KernelServer, arguments: Sequence[Any]) -> dict[str, Any]:
    """Answers when nothing of the Job runs any more, or after a second."""
    first = arguments[0] if arguments else None
    if isinstance(first, dict) and isinstance(first.get("job"), str):
        job_id = first["job"]
    elif isinstance(first, dict) and "uri" in first:
        argument = target(arguments)
        document = ls.documents.opened(argument["uri"])
        uri = document.uri if document is not None else argument["uri"]
        job = ls.session.runner.active(SiteKey(uri, site_of(argument)))
        if job is None:
            return {"cancelled": False, "reason": "Nothing runs on that Site."}
        job_id = job.id
    else:
        raise BadArguments("The command needs one object with job, or with uri and site.")
    if not ls.session.cancel(job_id):
        return {"job": job_id, "cancelled": False, "reason": "That Job has ended already."}
    return {"job": job_id, "cancelled": True}
