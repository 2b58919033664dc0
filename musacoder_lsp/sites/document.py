"""Text as this package sees it: a string, its UTF-8 bytes, and its lines.

Offsets are code points unless a name says `byte`. Lines are those of the editor protocol: they end
at `\\n`, `\\r\\n` and a lone `\\r` only; form feeds and the other characters at which
`str.splitlines` breaks belong to their line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# A block is re-encoded to find an offset in it: small enough to be cheap, large enough that a
# 50,000-line file has some hundred of them.
_BLOCK = 2048
_NEWLINE = re.compile(r"\r\n|\r|\n")
_LONE_CR = re.compile(rb"\r(?!\n)")
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?$")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces the code points [start, end) of the text before it by `text`."""

    start: int
    end: int
    text: str


class Document:
    """An immutable text with its offsets in code points, bytes and lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        # A lone surrogate cannot be valid UTF-8; it passes as three bytes and the parser calls it
        # an error, which is what it is.
        data = text.encode("utf-8", "surrogatepass")
        # tree-sitter's grammar does not end a line at a lone CR. The replacement keeps the length,
        # so every offset still holds.
        self.data = _LONE_CR.sub(b"\n", data) if b"\r" in data else data

    @cached_property
    def _block_bytes(self) -> list[int]:
        """Byte offset of every `_BLOCK`-th code point."""
        starts = [0]
        for begin in range(0, len(self.text), _BLOCK):
            block = self.text[begin : begin + _BLOCK]
            size = len(block) if block.isascii() else len(block.encode("utf-8", "surrogatepass"))
            starts.append(starts[-1] + size)
        return starts

    def byte(self, offset: int) -> int:
        """Byte offset of a code point offset; both may be one past the end."""
        if len(self.data) == len(self.text):
            return offset
        block, rest = divmod(offset, _BLOCK)
        if not rest:
            return self._block_bytes[block]
        begin = block * _BLOCK
        tail = self.text[begin : begin + rest]
        return self._block_bytes[block] + len(tail.encode("utf-8", "surrogatepass"))

    def offset(self, byte: int) -> int:
        """Code point offset of a byte offset; one inside a character means its start."""
        if len(self.data) == len(self.text):
            return byte
        if byte >= len(self.data):
            return len(self.text)
        while self.data[byte] & 0xC0 == 0x80:  # a continuation byte
            byte -= 1
        block = bisect_right(self._block_bytes, byte) - 1
        head = self.data[self._block_bytes[block] : byte]
        return block * _BLOCK + len(head.decode("utf-8", "surrogatepass"))

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of the first character of each line; there is always at least one line."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    def line_of(self, offset: int) -> int:
        """0-based line that holds the offset."""
        return bisect_right(self.line_starts, offset) - 1

    def line_start(self, offset: int) -> int:
        """Offset of the first character of the line that holds the offset; needs no line index."""
        newline = self.text.rfind("\n", 0, offset)
        carriage = self.text.rfind("\r", newline + 1, offset)
        if carriage >= 0 and self.text[carriage + 1 : carriage + 2] == "\n":
            # The offset is inside a CRLF, which belongs to its line.
            carriage = self.text.rfind("\r", newline + 1, carriage)
        return max(newline, carriage) + 1

    def line_text(self, line: int) -> str:
        """Line without its line ending."""
        start = self.line_starts[line]
        end = self.line_starts[line + 1] if line + 1 < len(self.line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    @property
    def newline(self) -> str:
        """The line ending of the first line, which is what an inserted line should use."""
        match = _NEWLINE.search(self.text)
        return match.group() if match else "\n"


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Applies edits one after the other, each to the result of those before it."""
    for edit in edits:
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def difference(before: str, after: str) -> Edit | None:
    """The one edit that leads from one text to another; None when they are equal."""
    if before == after:
        return None
    limit = min(len(before), len(after))
    start = _common_prefix(before, after, limit)
    limit -= start
    end = 0
    step = _BLOCK
    while end < limit:
        size = min(step, limit - end)
        a = before[len(before) - end - size : len(before) - end]
        b = after[len(after) - end - size : len(after) - end]
        if a == b:
            end += size
        elif size == 1:
            break
        else:
            step = size // 2
    return Edit(start, len(before) - end, after[start : len(after) - end])


def _common_prefix(before: str, after: str, limit: int) -> int:
    start = 0
    step = _BLOCK
    while start < limit:
        size = min(step, limit - start)
        if before[start : start + size] == after[start : start + size]:
            start += size
        elif size == 1:
            break
        else:
            step = size // 2
    return start


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file as it was read. `damaged`: bytes that are not valid in `encoding` stand as U+FFFD, so
    no edit may be offered. `binary`: it holds NUL bytes and is no source at all.
    `unknown_encoding`: the coding line names it and Python has none of that name for text, so the
    text was read as UTF-8."""

    text: str
    encoding: str
    damaged: bool = False
    binary: bool = False
    unknown_encoding: str | None = None


def decode_source(data: bytes) -> SourceText:
    """Decodes Python source by its BOM or coding line (PEP 263), else as UTF-8."""
    if b"\0" in data:
        return SourceText(data.decode("latin-1"), "latin-1", damaged=True, binary=True)
    encoding = "utf-8"
    if data.startswith(b"\xef\xbb\xbf"):
        encoding = "utf-8-sig"
    else:
        encoding = _declared_encoding(data) or encoding
    try:
        return SourceText(data.decode(encoding), encoding)
    except (UnicodeDecodeError, LookupError):
        pass
    try:
        return SourceText(data.decode(encoding, "replace"), encoding, damaged=True)
    except LookupError:
        text = data.decode("utf-8", "replace")
        return SourceText(text, "utf-8", damaged=True, unknown_encoding=encoding)


def _declared_encoding(data: bytes) -> str | None:
    for line in re.split(rb"\r\n|\r|\n", data[:4096])[:2]:
        match = _CODING.match(line)
        if match:
            return match.group(1).decode("ascii")
        if not _BLANK.match(line):
            return None
    return None


def read_source(path: Path) -> SourceText:
    """Reads a source file; OSError when it cannot be read."""
    return decode_source(path.read_bytes())
