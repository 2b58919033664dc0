"""The comment that asks for missing shapes, as a versioned edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.sites.document import Document

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def annotation_edit(ls: KernelServer, data: Any) -> types.WorkspaceEdit | None:
    """Inserts one comment line above the Site, in the document's own line ending and indentation.

    None when the document's version or the Site's text is not the one that `data` speaks of: a
    client such as Neovim 0.11 says "applied" to a stale edit and changes nothing.
    """
    if not isinstance(data, dict):
        return None
    document = ls.documents.opened(str(data.get("uri", "")))
    view = ls.session.documents.view(document.uri) if document is not None else None
    spot = view.spot(str(data.get("site", ""))) if view is not None else None
    if document is None or spot is None or document.damaged or document.version is None:
        return None
    if data.get("version", document.version) != document.version:
        return None
    if data.get("hash") != spot.site.fingerprint or not spot.site.missing:
        return None
    line = document.line_of(spot.start)
    text = document.line_text(line)
    indent = text[: len(text) - len(text.lstrip(" \t\f"))]
    named = ", ".join(f"{name}: f32[?, ?]" for name in spot.site.missing)
    newline = Document(document.text).newline
    at = types.Position(line, 0)
    edit = types.TextEdit(types.Range(at, at), f"{indent}# musacoder: {named}{newline}")
    identifier = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(identifier, [edit])])
