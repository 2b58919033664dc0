"""`codeAction/resolve`: the edit of an action, made when it is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features.annotation_edit import annotation_edit
from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def code_action_resolve(ls: KernelServer, params: types.CodeAction) -> types.CodeAction:
    """An action whose text has changed meanwhile comes back without an edit: it does nothing."""
    if params.data is not None and params.edit is None and params.command is None:
        try:
            params.edit = await annotation_edit(ls, params.data)
        except Refusal as problem:
            ls.note(str(problem), types.MessageType.Info, again=True)
    return params
