"""Texts with markers: `«` and `»` around a selection, `¦` for a cursor."""

from __future__ import annotations

from musacoder_lsp.sites import Refused, Site, SiteIndex, find_sites

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def names(text: str, path: str | None = None) -> list[str]:
    """`kind name` of each Site."""
    return [f"{site.kind} {site.name}" for site in find_sites(text, path)]


def at_cursor(marked: str) -> tuple[SiteIndex, Site | Refused]:
    offset = marked.index("¦")
    index = SiteIndex(marked.replace("¦", ""))
    return index, index.call_at(offset)


def selected(marked: str) -> tuple[SiteIndex, Site | Refused]:
    start = marked.index("«")
    end = marked.index("»") - 1
    index = SiteIndex(marked.replace("«", "").replace("»", ""))
    return index, index.selection(start, end)
