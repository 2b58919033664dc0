"""`musacoder.generate`: `{uri, site}` or `{uri, range}`; answers `{"job": id}` at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from musacoder_lsp.features.commands.arguments import range_of, site_of, target
from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def generate(ls: KernelServer, arguments: Sequence[Any]) -> dict[str, Any]:
    argument = target(arguments)
    document = ls.documents.opened(argument["uri"])
    if document is None:
        raise Refusal("The file is not open in the editor; open it and try again.")
    chosen = range_of(argument)
    if chosen is None:
        return {"job": ls.session.submit(document.uri, site_of(argument), "generate").id}
    if argument.get("version", document.version) != document.version:
        raise Refusal("The text changed meanwhile; select again.")
    start, end = document.offset_at(chosen.start), document.offset_at(chosen.end)
    job = await ls.session.submit_selection(document.uri, start, end)
    return {"job": job.id, "site": job.key.site}
