from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musacoder_lsp.sites.document import (
    Document,
    Edit,
    apply_edits,
    decode_source,
    difference,
    read_source,
)

TEXTS = st.text(
    alphabet=st.sampled_from("ab \t\n\r\f\x0b\x1c\x85\u2028é漢🙂\ufeff"), max_size=40
) | st.text(max_size=4200)


@given(TEXTS)
def test_offsets_and_bytes_are_inverse(text: str) -> None:
    document = Document(text)
    for offset in range(0, len(text) + 1, max(1, len(text) // 50)):
        byte = len(text[:offset].encode("utf-8", "surrogatepass"))
        assert document.byte(offset) == byte
        assert document.offset(byte) == offset


def test_a_byte_inside_a_character_is_its_start() -> None:
    document = Document("a🙂b")
    assert [document.offset(byte) for byte in range(7)] == [0, 1, 1, 1, 1, 2, 3]


@given(TEXTS)
def test_lines_end_only_where_the_protocol_says(text: str) -> None:
    document = Document(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [document.line_text(n) for n in range(len(document.line_starts))] == lines
    for offset in range(len(text) + 1):
        line = document.line_of(offset)
        assert document.line_starts[line] <= offset
        inside_crlf = text[offset - 1 : offset + 1] == "\r\n"
        if not inside_crlf:
            assert document.line_start(offset) == document.line_starts[line]


@given(TEXTS, TEXTS)
def test_difference_leads_from_one_to_the_other(before: str, after: str) -> None:
    edit = difference(before, after)
    assert (edit is None) == (before == after)
    if edit is not None:
        assert apply_edits(before, [edit]) == after


def test_difference_is_small() -> None:
    before = "x = 1\n" * 5000
    after = before[:6002] + "y" + before[6003:]
    assert difference(before, after) == Edit(6002, 6003, "y")


@pytest.mark.parametrize(
    "data, text, encoding, damaged",
    [
        (b"", "", "utf-8", False),
        ("é".encode(), "é", "utf-8", False),
        (b"\xef\xbb\xbfx", "x", "utf-8-sig", False),
        (b"# coding: latin-1\n\xe9", "# coding: latin-1\né", "latin-1", False),
        (
            b"#!x\r# -*- coding: cp1252 -*-\r\x80",
            "#!x\r# -*- coding: cp1252 -*-\r€",
            "cp1252",
            False,
        ),
        (b"x = 1\n# coding: latin-1\n\xe9", "x = 1\n# coding: latin-1\n\ufffd", "utf-8", True),
        (b"# coding: nonsense\nx", "# coding: nonsense\nx", "utf-8", True),
        (b"\xff\xfe", "\ufffd\ufffd", "utf-8", True),
    ],
)
def test_decoding(data: bytes, text: str, encoding: str, damaged: bool) -> None:
    source = decode_source(data)
    assert (source.text, source.encoding, source.damaged) == (text, encoding, damaged)


def test_binary_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"\x7fELF\0\0")
    assert read_source(path).binary


@given(st.binary(max_size=200))
def test_any_bytes_decode(data: bytes) -> None:
    decode_source(data)
