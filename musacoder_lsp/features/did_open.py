"""`textDocument/didOpen`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features.document import file_path

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def did_open(ls: KernelServer, params: types.DidOpenTextDocumentParams) -> None:
    opened = params.text_document
    if opened.language_id not in ("python", ""):
        return
    view = ls.session.open(opened.uri, file_path(opened.uri), opened.version, opened.text)
    if view.note is not None:
        ls.note(view.note, types.MessageType.Info)
