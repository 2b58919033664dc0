"""`textDocument/didClose`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features import diagnostics

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def did_close(ls: KernelServer, params: types.DidCloseTextDocumentParams) -> None:
    """Jobs go on: their results are kept and shown when the file is opened again."""
    uri = params.text_document.uri
    diagnostics.clear(ls, uri)
    ls.session.close(uri)
    ls.forget_lenses(uri)
