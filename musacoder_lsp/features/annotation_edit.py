"""The comment that asks for missing shapes, as a versioned edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

_CHANGED = "The text has changed since; look at the lenses again."


async def annotation_edit(ls: KernelServer, data: Any) -> types.WorkspaceEdit:
    """Inserts the comment lines that the Site still needs, in the document's own line ending and
    indentation.

    Raises Refusal when the document's version or the Site's text is not the one that `data` speaks
    of: a client such as Neovim 0.11 says "applied" to a stale edit and changes nothing.
    """
    if not isinstance(data, dict):
        raise Refusal(_CHANGED)
    document = ls.documents.opened(str(data.get("uri", "")))
    view = ls.session.documents.view(document.uri) if document is not None else None
    spot = view.spot(str(data.get("site", ""))) if view is not None else None
    if document is None or spot is None or document.version is None:
        raise Refusal(_CHANGED)
    version = document.version
    if data.get("version", version) != version or data.get("hash") != spot.site.fingerprint:
        raise Refusal(_CHANGED)
    template = await ls.session.template(document.uri, spot)
    if document.version != version or template is None:
        raise Refusal(_CHANGED)
    offset, text = template
    at = document.position_at(offset)
    identifier = types.OptionalVersionedTextDocumentIdentifier(document.uri, version)
    edit = types.TextDocumentEdit(identifier, [types.TextEdit(types.Range(at, at), text)])
    return types.WorkspaceEdit(document_changes=[edit])
