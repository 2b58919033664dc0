"""`textDocument/didSave`: a generated file that a person edits is verified again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.features.document import file_path

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def did_save(ls: KernelServer, params: types.DidSaveTextDocumentParams) -> None:
    document = ls.documents.opened(params.text_document.uri)
    if document is not None:
        ls.session.saved(document.uri, file_path(document.uri), document.text)
