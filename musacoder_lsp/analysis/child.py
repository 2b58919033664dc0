"""The analysis child: holds every open document, finds Sites, builds References.

Reads frames from stdin until it ends. A failure in one question is that question's answer.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from musacoder_lsp.analysis.frames import encode, read_frame
from musacoder_lsp.analysis.messages import (
    Answer,
    Ask,
    Changed,
    Closed,
    FindSelection,
    FindSites,
    FindTemplate,
    FoundSites,
    Opened,
    Question,
)
from musacoder_lsp.sites import SiteIndex, annotation_template, build_reference
from musacoder_lsp.sites.document import Edit, apply_edits, read_source
from musacoder_lsp.sites.site import Refused, Site

_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class _Held:
    path: str | None
    version: int
    text: str
    index: SiteIndex | None = None
    # Edits that `text` has and `index` has not seen.
    unseen: list[Edit] | None = None
    # What the last answer said, by all of a Site but its place: its index there.
    told: dict[tuple[object, ...], int] = field(default_factory=dict)


class Analyst:
    """Answers questions about the documents that it was told of."""

    def __init__(self) -> None:
        self._documents: dict[str, _Held] = {}

    def tell(self, message: Opened | Changed | Closed) -> None:
        if isinstance(message, Opened):
            self._documents[message.document] = _Held(message.path, message.version, message.text)
        elif isinstance(message, Changed):
            held = self._documents[message.document]
            held.text = apply_edits(held.text, message.edits)
            held.version = message.version
            if held.unseen is not None:
                held.unseen.extend(message.edits)
        else:
            self._documents.pop(message.document, None)

    def ask(self, ask: Ask) -> Answer:
        begun = time.perf_counter()
        held = self._documents.get(ask.question.document)
        if held is None:
            return Answer(ask.number, 0, None, 0.0, "The document is not open.")
        try:
            result = self._answer(ask.question, held)
            error = None
        except Exception as problem:
            result = None
            error = f"The source could not be analysed: {type(problem).__name__}: {problem}."
        return Answer(ask.number, held.version, result, time.perf_counter() - begun, error)

    def _answer(self, question: Question, held: _Held) -> object:
        index = self._index(held)
        if isinstance(question, FindSites):
            return _found(held, index.sites())
        if isinstance(question, FindSelection):
            return _place(index, (question.start, question.end))
        site = _place(index, question.site)
        if isinstance(question, FindTemplate):
            if isinstance(site, Refused):
                return None
            return annotation_template(site, held.text, index.tree)
        if isinstance(site, Refused):
            return site
        roots = [Path(root) for root in question.roots]
        built = build_reference(
            site, held.text, held.path, roots=roots, read=self._reader(), tree=index.tree
        )
        return site, built

    def _index(self, held: _Held) -> SiteIndex:
        if held.index is None:
            held.index = SiteIndex(held.text, held.path)
        elif held.unseen:
            held.index.update(held.unseen)
        held.unseen = []
        return held.index

    def _reader(self) -> Callable[[Path], str | None]:
        buffers = {
            os.path.realpath(held.path): held.text for held in self._documents.values() if held.path
        }

        def read(path: Path) -> str | None:
            """Unsaved buffers win over the disk."""
            text = buffers.get(os.path.realpath(path))
            if text is not None:
                return text
            try:
                source = read_source(path)
            except OSError:
                return None
            return None if source.binary else source.text

        return read


def _found(held: _Held, sites: tuple[Site, ...]) -> FoundSites:
    told: dict[tuple[object, ...], int] = {}
    shown: list[Site | int] = []
    places: list[int] = []
    for number, site in enumerate(sites):
        content = (
            site.id,
            site.kind,
            site.name,
            site.operations,
            site.missing,
            site.fingerprint,
            site.workload_origin,
            site.problem,
        )
        before = held.told.get(content)
        shown.append(site if before is None else before)
        places += (site.start, site.end, site.header)
        told[content] = number
    held.told = told
    return FoundSites(tuple(shown), tuple(places))


def _place(index: SiteIndex, site: str | tuple[int, int]) -> Site | Refused:
    if isinstance(site, str):
        found = next((item for item in index.sites() if item.id == site), None)
        return found or Refused("That code is no longer in the file.")
    start, end = site
    return index.call_at(start) if start == end else index.selection(start, end)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    analyst = Analyst()
    while (message := read_frame(requests)) is not None:
        if isinstance(message, Ask):
            answers.write(encode(analyst.ask(message)))
            answers.flush()
        elif isinstance(message, (Opened, Changed, Closed)):
            analyst.tell(message)


def die_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when `parent` dies; ends it when that has happened."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    # A parse must never slow down the loop that the user types against.
    os.nice(5)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
