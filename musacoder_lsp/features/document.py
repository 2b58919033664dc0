"""Open documents: text, versions, and positions in the client's units."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lsprotocol import types
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument, Workspace

from musacoder_lsp.sites.document import Edit, read_source

logger = logging.getLogger(__name__)

# Lines after the last one found where the next is looked for first.
_NEAR = 64
_UTF8 = types.PositionEncodingKind.Utf8
_UTF32 = types.PositionEncodingKind.Utf32


def units_to_column(line: str, units: int, encoding: str) -> int:
    """Code points in the first `units` code units of a line; inside a character means its start.
    More units than the line has mean its end."""
    if encoding == _UTF32 or line.isascii():
        return min(units, len(line))
    seen = 0
    for column, char in enumerate(line):
        seen += _width(char, encoding)
        if seen > units:
            return column
    return len(line)


def column_to_units(line: str, column: int, encoding: str) -> int:
    """Code units of the first `column` code points of a line."""
    head = line[:column]
    if encoding == _UTF32 or head.isascii():
        return len(head)
    return sum(_width(char, encoding) for char in head)


def _width(char: str, encoding: str) -> int:
    point = ord(char)
    if encoding == _UTF8:
        return 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4
    return 2 if point > 0xFFFF else 1


class OpenDocument(TextDocument):
    """A text whose lines end at `\\n`, `\\r\\n` and a lone `\\r` only, as the protocol says.

    Python's `str.splitlines`, which pygls uses, also breaks at form feeds, and every later edit
    would then hit the wrong line.

    Offsets are code points. No method changes a position that it is given.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.encoding = str(self._position_codec.encoding)
        self.opened = self._source is not None
        # A closed file that is not valid in its own encoding gets no edits from us.
        self.damaged = False
        if self._source is None:
            self._read_disk()
        self.text: str = self._source or ""
        self._starts = line_starts(self.text)
        self._is_binary = "\0" in self.text

    def _read_disk(self) -> None:
        try:
            source = read_source(Path(self.path))
        except (OSError, ValueError):
            self._source = ""
            self.damaged = True
            return
        self._source = source.text
        self.damaged = source.damaged

    @property
    def source(self) -> str:
        return self.text

    @property
    def lines(self) -> tuple[str, ...]:
        ends = [*self._starts[1:], len(self.text)]
        return tuple(self.text[a:b] for a, b in zip(self._starts, ends, strict=True))

    @property
    def line_count(self) -> int:
        return len(self._starts)

    @property
    def binary(self) -> bool:
        return self._is_binary

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def lines_of(self, offsets: Iterable[int]) -> list[int]:
        """`line_of` of each offset; in a long text much faster where they ascend in small steps."""
        starts, count = self._starts, len(self._starts)
        found = []
        line = 0
        for offset in offsets:
            near = min(line + _NEAR, count)
            if starts[line] <= offset and (near == count or offset < starts[near]):
                line = bisect_right(starts, offset, line, near) - 1
            else:
                line = bisect_right(starts, offset) - 1
            found.append(line)
        return found

    def line_start(self, line: int) -> int:
        return self._starts[line]

    def line_bounds(self, line: int) -> tuple[int, int]:
        """Offsets of a line's first character and of its line ending."""
        start = self._starts[line]
        return start, start + len(self.line_text(line))

    def line_text(self, line: int) -> str:
        """A line without its line ending."""
        start = self._starts[line]
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def offset_at(self, position: types.Position) -> int:
        if position.line < 0:
            return 0
        if position.line >= len(self._starts):
            return len(self.text)
        line = self.line_text(position.line)
        column = units_to_column(line, max(0, position.character), self.encoding)
        return self._starts[position.line] + column

    def position_at(self, offset: int) -> types.Position:
        offset = max(0, min(offset, len(self.text)))
        line = self.line_of(offset)
        text = self.line_text(line)
        column = min(offset - self._starts[line], len(text))
        return types.Position(line, column_to_units(text, column, self.encoding))

    def range_at(self, start: int, end: int) -> types.Range:
        return types.Range(self.position_at(start), self.position_at(end))

    def edit_of(self, change: types.TextDocumentContentChangeEvent) -> Edit:
        """The change as code point offsets into the present text."""
        if isinstance(change, types.TextDocumentContentChangePartial):
            start, end = self.offset_at(change.range.start), self.offset_at(change.range.end)
            return Edit(min(start, end), max(start, end), change.text)
        return Edit(0, len(self.text), change.text)

    def apply(self, edit: Edit) -> None:
        before = self.text
        self.text = self._source = before[: edit.start] + edit.text + before[edit.end :]
        self._starts = _edited_starts(self._starts, before, self.text, edit)
        if "\0" in edit.text:
            self._is_binary = True

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        self.apply(self.edit_of(change))


class DocumentWorkspace(Workspace):
    """pygls' workspace with our documents in it."""

    def _create_text_document(
        self,
        doc_uri: str,
        source: str | None = None,
        version: int | None = None,
        language_id: str | None = None,
    ) -> OpenDocument:
        return OpenDocument(
            doc_uri,
            source=source,
            version=version,
            language_id=language_id,
            sync_kind=self._sync_kind,
            position_codec=self._position_codec,
        )

    def opened(self, uri: str) -> OpenDocument | None:
        """The document as the client has it open, None when it has not."""
        found = self._text_documents.get(canonical(uri))
        return found if isinstance(found, OpenDocument) else None


def canonical(uri: str) -> str:
    """One spelling for the URIs that name one document; `%20` and a space are the same."""
    return unquote(uri)


def file_path(uri: str) -> str | None:
    """The path of a `file:` URI; None for unsaved buffers, notebook cells and other schemes."""
    if not uri.startswith("file:"):
        return None
    path: str | None = to_fs_path(uri)
    return path


def line_starts(text: str) -> list[int]:
    """Offset of the first character of each line; there is always at least one line."""
    starts = [0]
    position = 0
    if "\r" not in text:
        while (position := text.find("\n", position) + 1) > 0:
            starts.append(position)
        return starts
    return [0, *_ends(text, 0)]


def _ends(text: str, base: int) -> list[int]:
    found = []
    position, size = 0, len(text)
    while position < size:
        newline = text.find("\n", position)
        carriage = text.find("\r", position, newline if newline >= 0 else size)
        if carriage >= 0 and carriage + 1 != newline:
            position = carriage + 1
        elif newline >= 0:
            position = newline + 1
        else:
            break
        found.append(base + position)
    return found


def _edited_starts(starts: list[int], before: str, after: str, edit: Edit) -> list[int]:
    """Line starts after an edit: only the lines that it touches are looked at again.

    The line before counts as touched when the edit begins at a line's start, because its `\\r` may
    now meet a `\\n`.
    """
    shift = len(after) - len(before)
    first = bisect_right(starts, edit.start) - 1
    if first and edit.start == starts[first]:
        first -= 1
    last = bisect_right(starts, edit.end)
    begin = starts[first]
    end = (starts[last] if last < len(starts) else len(before)) + shift
    middle = _ends(after[begin:end], begin)
    tail = starts[last:]
    if tail:
        if middle and middle[-1] == end:
            middle.pop()
        if shift:
            tail = [start + shift for start in tail]
    return [*starts[: first + 1], *middle, *tail]
