"""`textDocument/didChange`: the text is changed, everything else waits for a pause."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lsprotocol import types

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

logger = logging.getLogger(__name__)


def did_change(ls: KernelServer, params: types.DidChangeTextDocumentParams) -> None:
    uri, version = params.text_document.uri, params.text_document.version
    document = ls.documents.opened(uri)
    if document is None:
        logger.warning("a change of %s, which is not open, was ignored", uri)
        return
    edits = []
    for change in params.content_changes:
        edit = document.edit_of(change)
        document.apply(edit)
        edits.append(edit)
    document.version = version
    ls.session.change(document.uri, version, edits)
