"""Open documents: every position and edit as the protocol defines it (P6, P18)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types
from pygls.workspace import PositionCodec

from musacoder_lsp.features.document import OpenDocument, line_starts
from musacoder_lsp.sites.document import Document, Edit

# Every line break that Python knows, those of the protocol, and characters of 1 to 4 bytes.
TEXT = st.text(st.sampled_from("ab \t\n\r\f\v\x1c\x85\u2028é字🚀"), max_size=40)
ENCODINGS = ["utf-8", "utf-16", "utf-32"]
_CODEC = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
_UNIT = {"utf-8": 1, "utf-16": 2, "utf-32": 4}


def document(text: str, encoding: str = "utf-16") -> OpenDocument:
    return OpenDocument(
        "file:///a.py", source=text, version=1, position_codec=PositionCodec(encoding)
    )


def units(text: str, encoding: str) -> int:
    return len(text.encode(_CODEC[encoding])) // _UNIT[encoding]


@given(TEXT)
def test_lines_are_those_of_the_protocol(text: str) -> None:
    """P6: `str.splitlines` would break at form feeds and other characters, too."""
    assert line_starts(text) == Document(text).line_starts
    assert "".join(document(text).lines) == text


@given(TEXT, st.sampled_from(ENCODINGS), st.data())
def test_offsets_and_positions_are_inverse(text: str, encoding: str, data: st.DataObject) -> None:
    opened = document(text, encoding)
    offset = data.draw(st.integers(0, len(text)))
    position = opened.position_at(offset)
    line = opened.line_text(position.line)
    column = min(offset - opened.line_start(position.line), len(line))
    assert position.character == units(line[:column], encoding)
    assert opened.offset_at(position) == opened.line_start(position.line) + column


@given(TEXT, st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), TEXT), max_size=6))
def test_edits_keep_the_line_index(text: str, edits: list[tuple[int, int, str]]) -> None:
    """P6: edit by edit, the index is that of the whole text."""
    opened = document(text)
    expected = text
    for a, b, new in edits:
        start, end = sorted((min(a, len(expected)), min(b, len(expected))))
        expected = expected[:start] + new + expected[end:]
        opened.apply(Edit(start, end, new))
        assert opened.text == expected
        assert opened._starts == line_starts(expected)


@given(
    TEXT,
    st.sampled_from(ENCODINGS),
    st.integers(0, 9),
    st.integers(0, 60),
    st.integers(0, 9),
    st.integers(0, 60),
)
def test_any_position_is_usable_and_unchanged(
    text: str, encoding: str, line: int, character: int, line2: int, character2: int
) -> None:
    """P18: pygls changes a position that is past the end of its line; past the end is the end."""
    opened = document(text, encoding)
    start, end = types.Position(line, character), types.Position(line2, character2)
    change = types.TextDocumentContentChangePartial(types.Range(start, end), "X")
    edit = opened.edit_of(change)
    assert 0 <= edit.start <= edit.end <= len(text)
    assert (start.character, end.character) == (character, character2)


def test_a_position_inside_a_character_means_its_start() -> None:
    opened = document("a🚀b", "utf-16")
    assert opened.offset_at(types.Position(0, 2)) == 1
    assert opened.offset_at(types.Position(0, 3)) == 2


def test_edits_after_a_form_feed_hit_their_line() -> None:
    """P6, as it occurs in real sources."""
    opened = document("import torch\n\f\ndef f(x):\n    return x\n")
    place = types.Range(types.Position(3, 4), types.Position(3, 10))
    opened.apply_change(types.TextDocumentContentChangePartial(place, "yield"))
    assert opened.text == "import torch\n\f\ndef f(x):\n    yield x\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_endings_stay_byte_exact(newline: str) -> None:
    text = newline.join(["a", "b = 1", "c", ""])
    opened = document(text)
    place = types.Range(types.Position(1, 0), types.Position(1, 1))
    opened.apply_change(types.TextDocumentContentChangePartial(place, "🚀"))
    assert opened.text == newline.join(["a", "🚀 = 1", "c", ""])


def test_a_closed_file_is_read_by_its_coding_line(tmp_path: Path) -> None:
    """P11: pygls reads every file as UTF-8 and raises otherwise."""
    file = tmp_path / "latin.py"
    file.write_bytes("# -*- coding: latin-1 -*-\nname = 'Grün'\n".encode("latin-1"))
    read = OpenDocument(file.as_uri(), position_codec=PositionCodec("utf-16"))
    assert "Grün" in read.text and not read.damaged


def test_a_damaged_file_gets_no_edits(tmp_path: Path) -> None:
    """P11: not valid in its own encoding, so what we would write back is not what was there."""
    file = tmp_path / "bad.py"
    file.write_bytes(b"name = '\xff\xfe'\n")
    assert OpenDocument(file.as_uri(), position_codec=PositionCodec("utf-16")).damaged
    assert OpenDocument((tmp_path / "gone.py").as_uri(), position_codec=PositionCodec()).text == ""


@given(st.lists(st.integers(0, 400)), st.integers(1, 300))
def test_many_lines_are_found_as_one_by_one(offsets: list[int], lines: int) -> None:
    opened = document("a\n" * lines)
    offsets = [min(offset, len(opened.text)) for offset in offsets]
    assert opened.lines_of(offsets) == [opened.line_of(offset) for offset in offsets]
    assert opened.lines_of(sorted(offsets)) == [
        opened.line_of(offset) for offset in sorted(offsets)
    ]
