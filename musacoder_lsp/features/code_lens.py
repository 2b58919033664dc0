"""`textDocument/codeLens`: where the lenses are. What they say comes with their resolution."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lsprotocol import types

from musacoder_lsp.analysis.documents import SiteView
from musacoder_lsp.features.document import OpenDocument, column_to_units
from musacoder_lsp.features.protocol import RawJson
from musacoder_lsp.sites.site import Site

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
    fragments = _Fragments(document)
    lenses = []
    for spot in spots:
        site = spot.site
        if site.kind != "selection" and site.kind not in kinds:
            continue
        place = fragments.range(spot.header)
        if place is None:
            continue
        data = fragments.data(site)
        lenses.append(f'{{"range":{place},"data":{{{data}}}}}')
        if site.id in running:
            lenses.append(f'{{"range":{place},"data":{{{data},"role":"cancel"}}}}')
    text = RawJson(f"[{','.join(lenses)}]")
    ls.lens_cache[document.uri] = (key, text)
    return text


class _Fragments:
    """Pieces of JSON, made by hand: a converter would take 30 µs for each of thousands."""

    def __init__(self, document: OpenDocument) -> None:
        self._document = document
        self._uri = json.dumps(document.uri)

    def data(self, site: Site) -> str:
        return f'"uri":{self._uri},"site":{json.dumps(site.id)},"hash":"{site.fingerprint}"'

    def range(self, header: int) -> str | None:
        """The first character of the header; None at the end of a line, because an empty range
        makes VS Code drop the lens."""
        document = self._document
        if document.text[header : header + 1] in ("", "\r", "\n"):
            return None
        line = document.line_of(header)
        column = header - document.line_start(line)
        if column:
            before = document.text[header - column : header]
            column = column_to_units(before, column, document.encoding)
        return (
            f'{{"start":{{"line":{line},"character":{column}}},'
            f'"end":{{"line":{line},"character":{column + 1}}}}}'
        )
