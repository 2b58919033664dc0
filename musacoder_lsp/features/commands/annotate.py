"""`musacoder.annotate`: `{uri, site, hash}`; asks the client to insert the comment for shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.features.annotation_edit import annotation_edit
from musacoder_lsp.features.commands.arguments import site_of, target
from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def annotate(ls: KernelServer, arguments: Sequence[Any]) -> dict[str, Any]:
    """Answers before the client has edited: whether it did shows in its next `didChange`."""
    argument = target(arguments)
    site_of(argument)
    if not ls.client.apply_edit:
        raise Refusal("This editor applies no edits from the server; write the comment by hand.")
    edit = await annotation_edit(ls, argument)
    params = types.ApplyWorkspaceEditParams(edit=edit, label="Shapes for a kernel")
    ls.spawn(ls.ask(types.WORKSPACE_APPLY_EDIT, params))
    return {"requested": True}
