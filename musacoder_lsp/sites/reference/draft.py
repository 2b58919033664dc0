"""A Reference while it is written: its lines, each with the user's line that it came from."""

from __future__ import annotations

from collections.abc import Iterable

from musacoder_verifier.reference import SourceLine
from tree_sitter import Node

from musacoder_lsp.sites.document import Document


class Draft:
    def __init__(self, document: Document, path: str | None) -> None:
        self._document = document
        self._path = path or ""
        self._lines: list[str] = []
        self._origins: list[SourceLine | None] = []

    def write(self, *lines: str) -> None:
        """Lines that are ours."""
        for line in lines:
            self._lines.append(line)
            self._origins.append(None)

    def blank(self, count: int = 1) -> None:
        """At least `count` blank lines, none at the start."""
        while count and self._lines and any(self._lines[-count:]):
            self.write("")

    def copy_lines(self, lines: Iterable[tuple[str, int]]) -> None:
        """Lines of the user's, each with its 0-based number."""
        for text, line in lines:
            self._lines.append(text)
            self._origins.append(SourceLine(self._path, line))

    def copy(self, node: Node, indent: str = "") -> None:
        """Copies a node's text, moved from the indentation of its first line to `indent`."""
        start, end = self._document.offset(node.start_byte), self._document.offset(node.end_byte)
        keep = string_lines(node, self._document)
        self.copy_lines(reindented(self._document, start, end, indent, keep))

    @property
    def source(self) -> str:
        return "\n".join(self._lines) + "\n"

    @property
    def origins(self) -> tuple[SourceLine | None, ...]:
        return tuple(self._origins)


def reindented(
    document: Document, start: int, end: int, indent: str, keep: frozenset[int]
) -> list[tuple[str, int]]:
    """Lines of the text [start, end) with the indentation of the first replaced by `indent`.

    Lines in `keep` begin inside a string and stay as they are.
    """
    first = document.line_of(start)
    last = document.line_of(max(start, end - 1))
    line_start = document.line_starts[first]
    before = document.text[line_start:start]
    old = before[: len(before) - len(before.lstrip(" \t\f"))]
    lines = [(indent + document.text[start : min(end, _end_of(document, first))], first)]
    for line in range(first + 1, last + 1):
        text = document.text[document.line_starts[line] : min(end, _end_of(document, line))]
        if line not in keep:
            text = indent + text.removeprefix(old) if text.strip() else ""
        lines.append((text, line))
    return lines


def _end_of(document: Document, line: int) -> int:
    return document.line_starts[line] + len(document.line_text(line))


def string_lines(node: Node, document: Document) -> frozenset[int]:
    """Lines that begin inside a string."""
    found: set[int] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type == "string":
            first = document.line_of(document.offset(current.start_byte))
            last = document.line_of(document.offset(max(current.end_byte - 1, 0)))
            found.update(range(first + 1, last + 1))
        else:
            stack.extend(current.children)
    return frozenset(found)
