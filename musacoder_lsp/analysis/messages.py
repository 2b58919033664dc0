"""What the server asks of its analysis child, and the answers."""

from __future__ import annotations

from dataclasses import dataclass

from musacoder_lsp.sites.document import Edit
from musacoder_lsp.sites.site import Site


@dataclass(frozen=True, slots=True)
class Opened:
    """The whole text of a document; replaces what the child knew of it."""

    document: str
    path: str | None
    version: int
    text: str


@dataclass(frozen=True, slots=True)
class Changed:
    document: str
    version: int
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    document: str


@dataclass(frozen=True, slots=True)
class FindSites:
    """Answered by FoundSites."""

    document: str


@dataclass(frozen=True, slots=True)
class FoundSites:
    """The Sites of a document as it stands. One that is the same as in the answer before, apart
    from its place, is its index there: an edit changes few of thousands. `places` has the present
    start, end and header of each Site, one after the other; the offsets in a Site itself may be
    older."""

    sites: tuple[Site | int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FindSelection:
    """Answered by a Site or Refused; offsets are code points. An empty range means the innermost
    operation around it."""

    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FindTemplate:
    """Answered by `(offset, text)` of the comment that a Site still needs, or None. `site` as in
    `BuildReference`."""

    document: str
    site: str | tuple[int, int]


@dataclass(frozen=True, slots=True)
class BuildReference:
    """Answered by `(Site, Reference | Unbuildable)`, or by Refused where a selection is no Site.
    `site` is the id of a Site of the present text, or the `(start, end)` of a selection in it."""

    document: str
    site: str | tuple[int, int]
    roots: tuple[str, ...]


Notification = Opened | Changed | Closed
Question = FindSites | FindSelection | FindTemplate | BuildReference


@dataclass(frozen=True, slots=True)
class Ask:
    number: int
    question: Question


@dataclass(frozen=True, slots=True)
class Answer:
    """`version` is the document's when the answer was made. `error` is one sentence, where the
    question could not be answered at all."""

    number: int
    version: int
    result: object
    seconds: float
    error: str | None = None
