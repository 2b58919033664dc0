"""`textDocument/codeLens`: where the lenses are. What they say comes with their resolution."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.analysis.documents import SiteView, Spot
from musacoder_lsp.features.document import OpenDocument, column_to_units
from musacoder_lsp.features.protocol import RawJson

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

# Seconds that the first request after opening waits for the first analysis. Neovim 0.11 asks once
# and has no refresh, so an empty answer would stay.
_FIRST = 5.0
_NONE = RawJson("[]")


async def code_lens(ls: KernelServer, params: types.CodeLensParams) -> RawJson:
    """The last good set, never null and never an error: either would make lenses vanish."""
    document = ls.documents.opened(params.text_document.uri)
    if document is None:
        return _NONE
    view = ls.session.documents.view(document.uri)
    if view is None:
        return _NONE
    if not view.known:
        await ls.session.documents.first_analysis(document.uri, _FIRST)
    return _lenses(ls, document, view)


def _lenses(ls: KernelServer, document: OpenDocument, view: SiteView) -> RawJson:
    spots = view.current()
    running = frozenset(
        job.key.site for job in ls.session.runner.all_active() if job.key.document == document.uri
    )
    kinds = ls.session.settings_of(view.path).lenses
    key = (document.version, spots, running, kinds)
    cached = ls.lens_cache.get(document.uri)
    # `is` for the spots: comparing thousands of them would cost what the cache saves.
    if cached is not None and cached[0][1] is spots and cached[0] == key:
        return cached[1]
    uri = json.dumps(document.uri)
    lenses = []
    for spot in spots:
        site = spot.site
        if site.kind != "selection" and site.kind not in kinds:
            continue
        place = _range(document, spot)
        if place is None:
            continue
        data = f'"uri":{uri},"site":{json.dumps(site.id)},"hash":"{site.fingerprint}"'
        lenses.append(f'{{"range":{place},"data":{{{data}}}}}')
        if site.id in running:
            lenses.append(f'{{"range":{place},"data":{{{data},"role":"cancel"}}}}')
    text = RawJson(f"[{','.join(lenses)}]")
    ls.lens_cache[document.uri] = (key, text)
    return text


def _range(document: OpenDocument, spot: Spot) -> str | None:
    """From the header to the end of its line; None where that is empty, because an empty range
    makes VS Code drop the lens."""
    line = document.line_of(min(spot.header, len(document.text)))
    text = document.line_text(line)
    column = spot.header - document.line_start(line)
    end = column_to_units(text, len(text), document.encoding)
    start = column_to_units(text, column, document.encoding)
    if end <= start:
        return None
    return (
        f'{{"start":{{"line":{line},"character":{start}}},'
        f'"end":{{"line":{line},"character":{end}}}}}'
    )
