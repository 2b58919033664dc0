"""Compiler output on the lines of the Candidate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from musacoder_verifier.build_request import SourceText
from musacoder_verifier.diagnostics import condensed, on_candidate, parse, virtual_name

PATH = "/project/candidate.py"


def placed(output: str, *sources: SourceText) -> list[tuple[int, int, str, str]]:
    found = on_candidate(parse(output), sources, PATH)
    return [(item.line, item.column, item.severity, item.message) for item in found]


def test_a_gcc_error_moves_to_the_line_of_the_string():
    source = SourceText("cpp", "\nint f() {\n  return x;\n}\n", line=10, column=12)
    output = (
        "musacoder_source_0: In function ‘int f()’:\n"
        "musacoder_source_0:3:10: error: ‘x’ was not declared in this scope\n"
        "    3 |   return x;\n"
        "      |          ^\n"
    )
    assert placed(output, source) == [(12, 10, "error", "‘x’ was not declared in this scope")]


def test_the_first_line_of_a_string_counts_from_its_column():
    source = SourceText("cpp", "int f() { return x; }", line=4, column=9)
    output = "musacoder_source_0:1:18: error: ‘x’ was not declared in this scope\n"
    assert placed(output, source) == [(4, 26, "error", "‘x’ was not declared in this scope")]


def test_columns_count_characters_not_bytes():
    source = SourceText("cpp", '// é\nf("ä😀", x);', line=1, column=1)
    byte_column = len('f("ä😀", '.encode()) + 1
    output = f"musacoder_source_0:2:{byte_column}: error: no x\n"
    assert placed(output, source)[0][:2] == (2, len('f("ä😀", ') + 1)


def test_a_tab_is_one_character():
    source = SourceText("cpp", "\t\treturn x;", line=7, column=1)
    assert placed("musacoder_source_0:1:10: error: no x\n", source)[0][:2] == (7, 10)


def test_clang_and_nvcc_words_are_understood():
    source = SourceText("cuda", "a\nb\nc\n", line=5, column=1)
    output = (
        "musacoder_source_0:2:1: fatal error: use of undeclared identifier 'b'\n"
        'musacoder_source_0.cu(3): error #20: identifier "c" is undefined\n'
        "musacoder_source_0(1): warning #177-D: variable was declared but never referenced\n"
    )
    assert placed(output, source) == [
        (6, 1, "error", "use of undeclared identifier 'b'"),
        (7, 1, "error", 'identifier "c" is undefined'),
        (5, 1, "warning", "variable was declared but never referenced"),
    ]


def test_notes_belong_to_the_error_before_them():
    source = SourceText("cpp", "a\nb\nc\n", line=5, column=1)
    output = (
        "musacoder_source_0:2:1: error: no matching function\n"
        "/usr/include/c++/12/vector:3:4: note: candidate: push_back\n"
        "musacoder_source_0:3:1: note: declared here\n"
    )
    (found,) = on_candidate(parse(output), [source], PATH)
    assert found.related == (
        ("/usr/include/c++/12/vector", 3, 4, "candidate: push_back"),
        (PATH, 7, 1, "declared here"),
    )


def test_an_error_inside_a_header_is_shown_where_the_candidate_led_into_it():
    source = SourceText("cpp", "a\nb\nc\n", line=5, column=1)
    output = (
        "/usr/include/c++/12/vector:3:4: error: static assertion failed\n"
        "musacoder_source_0:2:1: note: in instantiation of function template requested here\n"
    )
    assert placed(output, source)[0] == (6, 1, "error", "static assertion failed")


def test_gcc_names_the_place_of_an_instantiation_before_the_error():
    source = SourceText("cpp", "a\nb\nc\n", line=5, column=1)
    output = (
        "/inc/x.h: In instantiation of ‘void f(T) [with T = int]’:\n"
        "musacoder_source_0:3:2:   required from here\n"
        "/inc/x.h:9:4: error: static assertion failed: no\n"
    )
    assert placed(output, source)[0] == (7, 2, "error", "static assertion failed: no")


def test_a_missing_symbol_is_shown_at_its_first_use():
    source = SourceText("cpp", "void launch(int);\nvoid f() { launch(1); }\n", line=3, column=1)
    output = "/usr/bin/ld: /tmp/a.o: in function `f()':\nmain.cpp:(.text+0x5): undefined reference "
    output += "to `launch(int)'\ncollect2: error: ld returned 1 exit status\n"
    assert placed(output, source) == [
        (3, 6, "error", "undefined reference to `launch(int)`"),
    ]


def test_a_computed_source_says_so():
    source = SourceText("cpp", "int a;\nint f() { return x; }\n")
    (line, _, _, text) = placed("musacoder_source_0:2:18: error: no x\n", source)[0]
    assert line == 1
    assert text == "no x (line 2 of a computed source: int f() { return x; })"


def test_what_is_not_utf8_stays_visible():
    from musacoder_verifier.tools import decoded

    output = decoded(b"musacoder_source_0:1:1: error: stray \xff in program\n")
    assert placed(output, SourceText("cpp", "x", line=1, column=1))[0][3] == (
        r"stray \xff in program"
    )


def test_condensed_is_bounded_and_speaks_of_the_candidate():
    source = SourceText("cpp", "a\n" * 100, line=1, column=1)
    output = "".join(f"musacoder_source_0:{n}:1: error: e{n}\n" for n in range(1, 60))
    text = condensed(on_candidate(parse(output), [source], PATH), limit=20)
    assert text.splitlines()[0] == f"{PATH}:1:1: error: e1"
    assert text.splitlines()[-1] == "... and 39 more errors"


@given(
    before=st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), max_size=20),
    start=st.integers(1, 500),
    lead=st.integers(0, 5),
)
def test_a_byte_column_finds_its_character(before: str, start: int, lead: int):
    """Any character, in any line, is found again by the byte at which the compiler saw it."""
    text = "\n" * lead + before + "@"
    source = SourceText("cpp", text, line=start, column=1)
    column = len(before.encode()) + 1
    output = f"{virtual_name(0)}:{lead + 1}:{column}: error: stray @\n"
    assert placed(output, source) == [(start + lead, len(before) + 1, "error", "stray @")]


@given(st.text(max_size=300))
def test_no_output_is_too_strange(output: str):
    source = SourceText("cpp", "int x;\n", line=1, column=1)
    for item in on_candidate(parse(output), [source], PATH):
        assert item.line >= 1
        assert item.column >= 1


@pytest.mark.parametrize("line", [0, 3, 99])
def test_a_line_outside_the_source_is_harmless(line: int):
    source = SourceText("cpp", "int x;", line=5, column=3)
    assert len(placed(f"musacoder_source_0:{line}:7: error: odd\n", source)) == 1
