"""`textDocument/hover`: the report on the Site under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.analysis.documents import Spot
from musacoder_lsp.features.document import OpenDocument
from musacoder_lsp.report import report

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


def hover(ls: KernelServer, params: types.HoverParams) -> types.Hover | None:
    """None away from a Site's own line, so that other servers' hovers stay short."""
    document = ls.documents.opened(params.text_document.uri)
    view = ls.session.documents.view(document.uri) if document is not None else None
    if document is None or view is None:
        return None
    spot = _under(document, view.current(), params.position)
    if spot is None:
        return None
    text = "\n".join(report(ls.session.state(document.uri, spot), ls.now()))
    if ls.client.markdown_hover:
        # A fence longer than any in the text keeps the columns, in every client.
        content = types.MarkupContent(types.MarkupKind.Markdown, f"````text\n{text}\n````")
    else:
        content = types.MarkupContent(types.MarkupKind.PlainText, text)
    header = document.position_at(spot.header)
    line = document.line_text(header.line)
    end = document.line_start(header.line) + len(line)
    return types.Hover(content, types.Range(header, document.position_at(end)))


def _under(
    document: OpenDocument, spots: tuple[Spot, ...], position: types.Position
) -> Spot | None:
    offset = document.offset_at(position)
    begin, end = document.line_bounds(document.line_of(offset))
    found = [
        spot
        for spot in spots
        if begin <= spot.header <= end
        or (spot.start <= offset <= spot.end and spot.site.kind in ("call", "selection"))
    ]
    return min(found, key=lambda spot: spot.end - spot.start, default=None)
