"""The Sites of every open document as they are known now, and when to look again."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from musacoder_lsp.analysis.client import AnalysisClient, AnalysisFailed
from musacoder_lsp.analysis.messages import FindSites, FoundSites
from musacoder_lsp.sites.document import Edit
from musacoder_lsp.sites.site import Site

logger = logging.getLogger(__name__)

# A pause in the typing that is worth an analysis, in seconds; a slow file waits for as long as
# its last analysis took, so that the child never works more than half of the time.
_PAUSE = 0.08
_LONGEST_PAUSE = 1.5
# Characters. Above this a file is generated data rather than source that someone edits.
MAX_CHARACTERS = 8_000_000


class Spot(NamedTuple):
    """Where a Site stands in the present text; offsets are code points. A tuple, because each edit
    of a long file makes thousands of them."""

    site: Site
    start: int
    end: int
    header: int


@dataclass(slots=True)
class SiteView:
    """The last good Sites of one document. After an edit they are shifted, never dropped.

    `source` is the document's name in the store: its real path, which survives other spellings of
    the URI, or the URI where it has none.
    """

    document: str
    path: str | None
    version: int
    source: str
    # True once the Sites come from a finished analysis.
    known: bool = False
    # In one sentence: why this document has no Sites at all.
    note: str | None = None
    spots: tuple[Spot, ...] = ()
    # Selections that a Job was started on; they live as long as the document is open.
    pinned: tuple[Spot, ...] = ()
    _sites: list[Site] = field(default_factory=list)
    _edits: list[tuple[int, Edit]] = field(default_factory=list)
    _shifted_to: int = 0

    def edited(self, version: int, edits: Sequence[Edit]) -> None:
        self.version = version
        self._edits.extend((version, edit) for edit in edits)

    def current(self) -> tuple[Spot, ...]:
        """Spots in the text of `version`."""
        if self._shifted_to < len(self._edits):
            edits = [edit for _, edit in self._edits[self._shifted_to :]]
            self.spots = shift(self.spots, edits)
            self.pinned = shift(self.pinned, edits)
            self._shifted_to = len(self._edits)
        # The same tuple while nothing changes: whoever caches by it compares identities.
        return (*self.spots, *self.pinned) if self.pinned else self.spots

    def found(self, version: int, answer: FoundSites) -> None:
        """The Sites of an earlier or the present version."""
        self.current()
        before = self._sites
        sites = [before[item] if isinstance(item, int) else item for item in answer.sites]
        places = iter(answer.places)
        spots = tuple(map(Spot, sites, places, places, places))
        self._sites = sites
        later = [edit for at, edit in self._edits if at > version]
        self.spots = shift(spots, later)
        self._edits = [(at, edit) for at, edit in self._edits if at > version]
        self._shifted_to = len(self._edits)
        self.known = True

    def pin(self, site: Site) -> None:
        self.current()
        others = tuple(spot for spot in self.pinned if spot.site.id != site.id)
        self.pinned = (*others, Spot(site, site.start, site.end, site.header))

    def spot(self, site_id: str) -> Spot | None:
        return next((spot for spot in self.current() if spot.site.id == site_id), None)


def source_name(document: str, path: str | None) -> str:
    return document if path is None else os.path.realpath(path)


def shift(spots: tuple[Spot, ...], edits: Sequence[Edit]) -> tuple[Spot, ...]:
    """Moves Spots by edits. An offset inside replaced text goes to where that text began."""
    for edit in edits:
        delta = len(edit.text) - (edit.end - edit.start)
        moved = []
        for spot in spots:
            if spot.end < edit.start:
                moved.append(spot)
            elif spot.start >= edit.end and spot.header >= edit.end:
                if delta:
                    spot = Spot(
                        spot.site, spot.start + delta, spot.end + delta, spot.header + delta
                    )
                moved.append(spot)
            else:
                moved.append(
                    Spot(
                        spot.site,
                        _move(spot.start, edit, delta),
                        _move(spot.end, edit, delta),
                        _move(spot.header, edit, delta),
                    )
                )
        spots = tuple(moved)
    return spots


def _move(offset: int, edit: Edit, delta: int) -> int:
    if offset >= edit.end:
        return offset + delta
    return min(offset, edit.start)


class DocumentBook:
    """All open documents. `on_sites` is called with a document's name after each analysis."""

    def __init__(self, client: AnalysisClient, on_sites: Callable[[str], None]) -> None:
        self._client = client
        self._on_sites = on_sites
        self._views: dict[str, SiteView] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._costs: dict[str, float] = {}
        self._first: dict[str, asyncio.Event] = {}

    def names(self) -> list[str]:
        return list(self._views)

    def view(self, document: str) -> SiteView | None:
        return self._views.get(document)

    def open(self, document: str, path: str | None, version: int, text: str) -> SiteView:
        self.close(document)
        view = self._views[document] = SiteView(
            document, path, version, source_name(document, path)
        )
        self._first[document] = asyncio.Event()
        if "\0" in text:
            view.note = "This file is binary; no kernels are offered in it."
        elif len(text) > MAX_CHARACTERS:
            view.note = (
                f"This file is larger than {MAX_CHARACTERS // 1_000_000} million characters; "
                "no kernels are offered in it."
            )
        if view.note is not None:
            self._settle(view)
            return view
        self._client.open(document, path, version, text)
        self._schedule(document, 0.0)
        return view

    def change(self, document: str, version: int, edits: Sequence[Edit]) -> None:
        view = self._views.get(document)
        if view is None:
            return
        view.edited(version, edits)
        if view.note is None:
            self._client.change(document, version, tuple(edits))
            self._schedule(document, self._pause(document))

    def close(self, document: str) -> None:
        if self._views.pop(document, None) is None:
            return
        self._client.close_document(document)
        task = self._tasks.pop(document, None)
        if task is not None:
            task.cancel()
        self._first.pop(document).set()

    async def first_analysis(self, document: str, patience: float) -> None:
        """Waits until a newly opened document was looked at once, for at most `patience` s."""
        event = self._first.get(document)
        if event is not None and not event.is_set():
            try:
                await asyncio.wait_for(event.wait(), patience)
            except TimeoutError:
                logger.info("%s is still being analysed", document)

    async def shutdown(self) -> None:
        for document in self.names():
            self.close(document)

    def _pause(self, document: str) -> float:
        return min(max(_PAUSE, self._costs.get(document, 0.0)), _LONGEST_PAUSE)

    def _schedule(self, document: str, pause: float) -> None:
        """One analysis after a pause. One that has been asked for already is not disturbed; the
        edits that it misses are seen when it ends."""
        if document not in self._tasks:
            self._tasks[document] = asyncio.create_task(self._analyse(document, pause))

    async def _analyse(self, document: str, pause: float) -> None:
        view = self._views[document]
        while True:
            waited, version = 0.0, None
            while pause and version != view.version and waited < _LONGEST_PAUSE:
                version = view.version
                await asyncio.sleep(pause)
                waited += pause
            try:
                answer = await self._client.ask(FindSites(document))
            except AnalysisFailed as problem:
                # The last good Sites stay; the next edit tries again.
                logger.warning("%s: %s", document, problem)
                self._settle(view)
                break
            self._costs[document] = answer.seconds
            assert isinstance(answer.result, FoundSites)
            view.found(answer.version, answer.result)
            self._settle(view)
            if answer.version == view.version:
                break
            pause = self._pause(document)
        self._tasks.pop(document, None)

    def _settle(self, view: SiteView) -> None:
        view.known = True
        self._first[view.document].set()
        self._on_sites(view.document)
