"""`musacoder.repair`: `{uri, site}`; the next turn on the last attempt. Answers `{"job": id}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from musacoder_lsp.features.commands.arguments import site_of, target
from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def repair(ls: KernelServer, arguments: Sequence[Any]) -> dict[str, Any]:
    argument = target(arguments)
    document = ls.documents.opened(argument["uri"])
    if document is None:
        raise Refusal("The file is not open in the editor; open it and try again.")
    return {"job": ls.session.submit(document.uri, site_of(argument), "repair").id}
