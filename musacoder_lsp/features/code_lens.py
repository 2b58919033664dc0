"""`textDocument/codeLens`: where the lenses are. What they say comes with their resolution."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True, slots=True)
class CachedLenses:
    """The last answer for a document, what it was made from, and the JSON that names each Site."""

    key: tuple[Any, ...]
    text: RawJson
    data: Mapping[int, tuple[Site, str]]


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
    if cached is not None and cached.key[1] is spots and cached.key == key:
        return cached.text
    shown = [spot for spot in spots if spot.site.kind == "selection" or spot.site.kind in kinds]
    known = cached.data if cached is not None else {}
    uri = json.dumps(document.uri)
    data: dict[int, tuple[Site, str]] = {}
    lenses = []
    for spot, place in zip(shown, _ranges(document, [spot.header for spot in shown]), strict=True):
        site = spot.site
        # The identity of a Site that is held here; it outlives edits elsewhere in the file.
        piece = known.get(id(site))
        if piece is None or piece[0] is not site:
            piece = (site, f'"uri":{uri},"site":{json.dumps(site.id)},"hash":"{site.fingerprint}"')
        data[id(site)] = piece
        if place is None:
            continue
        lenses.append(f'{{"range":{place},"data":{{{piece[1]}}}}}')
        if site.id in running:
            lenses.append(f'{{"range":{place},"data":{{{piece[1]},"role":"cancel"}}}}')
    text = RawJson(f"[{','.join(lenses)}]")
    ls.lens_cache[document.uri] = CachedLenses(key, text, data)
    return text


def _ranges(document: OpenDocument, headers: Sequence[int]) -> Iterator[str | None]:
    """The first character of each header, as JSON by hand: a converter would take 30 µs for each of
    thousands. None at the end of a line, because an empty range makes VS Code drop the lens."""
    text = document.text
    for header, line in zip(headers, document.lines_of(headers), strict=True):
        if text[header : header + 1] in ("", "\r", "\n"):
            yield None
            continue
        column = header - document.line_start(line)
        if column:
            column = column_to_units(text[header - column : header], column, document.encoding)
        yield (
            f'{{"start":{{"line":{line},"character":{column}}},'
            f'"end":{{"line":{line},"character":{column + 1}}}}}'
        )
