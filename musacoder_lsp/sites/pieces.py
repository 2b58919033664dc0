"""Piece: one statement at the top of a module, with all that is known of it from its own bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from musacoder_lsp.sites.discover import Found
from musacoder_lsp.sites.names import Binding

_IDENTIFIER = re.compile(rb"[A-Za-z_\x80-\xff][\w\x80-\xff]*")
_COMMENT = re.compile(rb"^[ \t]*#(?!.*musacoder).*$")


@dataclass(slots=True)
class Piece:
    """A statement with the comment block above it.

    All but `found` depends on its bytes alone; `found` on the names in `asked` as well.
    """

    bindings: tuple[Binding, ...]
    identifiers: frozenset[bytes]
    digest: bytes
    asked: dict[str, str | bool | None]
    found: tuple[Found, ...] | None = None
    # It holds no word that tensor code needs, so it was not read.
    skipped: bool = False
    # Per Site of `found`: its fingerprint, and the names that went into it.
    fingerprints: dict[tuple[str, bool], tuple[str, frozenset[bytes]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placed:
    piece: Piece
    start: int
    node: Node


class Dependencies:
    """What the names of a module lead to, transitively.

    Every identifier in the text counts, in strings and attributes too: a result that is called
    stale too often is cheaper than one that is wrong.
    """

    def __init__(self, placed: Sequence[Placed]) -> None:
        self._defined: dict[bytes, list[Piece]] = {}
        for place in placed:
            for binding in place.piece.bindings:
                self._defined.setdefault(binding.name.encode(), []).append(place.piece)

    def __contains__(self, name: bytes) -> bool:
        return name in self._defined

    def closure(self, names: Iterable[bytes]) -> tuple[frozenset[bytes], dict[int, Piece]]:
        """All names that are reached, and the pieces that define them."""
        waiting = set(names)
        seen: set[bytes] = set()
        used: dict[int, Piece] = {}
        while waiting:
            seen |= waiting
            reached: set[bytes] = set()
            for name in waiting:
                for piece in self._defined.get(name, ()):
                    if id(piece) not in used:
                        used[id(piece)] = piece
                        reached |= piece.identifiers
            waiting = reached - seen
        return frozenset(seen), used


def identifiers(data: bytes) -> set[bytes]:
    return set(_IDENTIFIER.findall(data))


def normalised(data: bytes) -> bytes:
    """Source text without what cannot change its meaning: line endings, trailing blanks, blank
    lines, and comments on their own line (annotations stay)."""
    lines = [line.rstrip() for line in data.replace(b"\r\n", b"\n").split(b"\n")]
    if b'"""' in data or b"'''" in data:
        # A line of a long string may look like a comment.
        return b"\n".join(lines)
    return b"\n".join(line for line in lines if line and not _COMMENT.match(line))
