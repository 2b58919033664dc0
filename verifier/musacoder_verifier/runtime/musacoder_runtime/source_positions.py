"""Where a source string stands in the Candidate's file.

The compiler speaks of line 7 of a string; the user sees line 31 of a Python file.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Optional

_OPENING = re.compile(r"([A-Za-z]{0,2})(\"\"\"|'''|\"|')")


@dataclass(frozen=True)
class Position:
    """1-based line and column (in characters) of the first character of a string's value."""

    line: int
    column: int
    escaped: bool


@dataclass(frozen=True)
class _Literal:
    value: str
    position: Position


class SourcePositions:
    """The string literals of one Python source, looked up by value."""

    def __init__(self, source: str) -> None:
        self._literals: list[_Literal] = []
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
        lines = source.splitlines(keepends=True)
        inside = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) in inside:
                    continue
                literal = _literal(node, lines, source)
                if literal is not None:
                    self._literals.append(literal)

    def find(self, text: str) -> Optional[Position]:
        """The literal with this value; else the first one that holds it (a stripped one, say)."""
        for literal in self._literals:
            if literal.value == text:
                return literal.position
        if not text.strip():
            return None
        for literal in self._literals:
            offset = literal.value.find(text)
            if offset >= 0 and not literal.position.escaped:
                return _advanced(literal.position, literal.value[:offset])
        return None


def _literal(node: ast.Constant, lines: list[str], source: str) -> Optional[_Literal]:
    segment = ast.get_source_segment(source, node)
    opening = _OPENING.match(segment) if segment is not None else None
    if segment is None or opening is None:
        return None
    # ast counts columns in UTF-8 bytes.
    before = lines[node.lineno - 1].encode("utf-8")[: node.col_offset].decode("utf-8", "replace")
    line, column = node.lineno, len(before) + opening.end() + 1
    inner = segment[opening.end() : -len(opening.group(2))].replace("\r\n", "\n")
    raw = "r" in opening.group(1).lower()
    if inner.startswith("\\\n") and not raw:
        inner, line, column = inner[2:], line + 1, 1
    return _Literal(str(node.value), Position(line, column, inner != node.value))


def _advanced(position: Position, skipped: str) -> Position:
    newlines = skipped.count("\n")
    if newlines == 0:
        return Position(position.line, position.column + len(skipped), position.escaped)
    last = len(skipped) - skipped.rfind("\n") - 1
    return Position(position.line + newlines, last + 1, position.escaped)
