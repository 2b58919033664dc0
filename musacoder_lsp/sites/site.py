"""Site: a piece of the user's source that can become a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from musacoder_verifier.workload import Origin

Kind = Literal["module", "function", "call", "selection"]


@dataclass(frozen=True, slots=True)
class Site:
    """Offsets are code points into the text that the Site was found in.

    `id` survives edits elsewhere in the file: kind, qualified name, and a number where that is not
    unique. `header` is the offset of the line that a lens belongs on: the `class` or `def` line
    (below decorators), or the statement's. `operations` are the distinct operations in source
    order. `missing` are the names that the Workload lacks (inputs, constructor arguments, symbolic
    dimensions); `problem` is what is wrong with an annotation comment, in one sentence.
    `fingerprint` changes with the Site's own text, its annotations, and the text of what it uses
    in the same file.
    """

    id: str
    kind: Kind
    name: str
    start: int
    end: int
    header: int
    operations: tuple[str, ...]
    missing: tuple[str, ...] = ()
    fingerprint: str = ""
    workload_origin: Origin | None = None
    problem: str | None = None

    def shifted(self, by: int) -> Site:
        """The same Site after text was inserted or deleted before it."""
        if not by:
            return self
        return replace(self, start=self.start + by, end=self.end + by, header=self.header + by)


@dataclass(frozen=True, slots=True)
class Refused:
    """Why no Site can be made of a place or a range; one sentence."""

    reason: str
