"""SiteIndex: edits, broken text, line endings, identities."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from site_markers import HEADER

from musacoder_lsp.sites import Edit, Site, SiteIndex, build_reference, find_sites
from musacoder_lsp.sites.document import Document, apply_edits
from musacoder_lsp.sites.syntax import parse, reparse

NET = """class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        y = F.relu(self.fc(x))
        return y + 1
"""
SCALE = "def scale(x: torch.Tensor):\n    return x * FACTOR\n"
FILE = HEADER + "\nFACTOR = 2\n\n\n" + NET + "\n\n" + SCALE + "\n\ndef plain(a):\n    return a\n"

EDITS = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(0, 40),
        st.text(alphabet=st.sampled_from('()":=# \n\r\t\fx\\🙂é'), max_size=6)
        | st.sampled_from(["class A(nn.Module):\n", "def f(", "F.relu(", "    ", "'''", "\r\n"]),
    ),
    max_size=6,
)


def resolved(text: str, raw: list[tuple[int, int, str]]) -> list[Edit]:
    """Edits that lie inside the text as it is when each is applied."""
    edits = []
    for start, length, new in raw:
        start %= len(text) + 1
        edit = Edit(start, min(len(text), start + length), new)
        edits.append(edit)
        text = apply_edits(text, [edit])
    return edits


def shape(node: object) -> object:
    return (node.type, node.start_byte, node.end_byte, [shape(c) for c in node.children])  # type: ignore[attr-defined]


@settings(max_examples=80, deadline=None)
@given(EDITS, st.sampled_from(["\n", "\r\n", "\r"]))
def test_incremental_parse_equals_a_fresh_one(
    raw: list[tuple[int, int, str]], newline: str
) -> None:
    text = FILE.replace("\n", newline)
    document = Document(text)
    tree = parse(document)
    for edit in resolved(text, raw):
        document, tree = reparse(tree, document, [edit])
        fresh = parse(Document(document.text))
        if not fresh.root_node.has_error and not tree.root_node.has_error:
            assert shape(tree.root_node) == shape(fresh.root_node)
        # Recovery from errors may differ, the extents of the file may not.
        assert tree.root_node.end_byte == fresh.root_node.end_byte


@settings(max_examples=80, deadline=None)
@given(EDITS)
def test_sites_after_edits_equal_those_of_the_text(raw: list[tuple[int, int, str]]) -> None:
    index = SiteIndex(FILE)
    for edit in resolved(FILE, raw):
        sites = index.update([edit])
        assert all(0 <= s.start <= s.end <= len(index.text) for s in sites)
        assert all(0 <= s.header <= s.end for s in sites)
        assert len({s.id for s in sites}) == len(sites)
        tree = index.tree
        if tree is not None and not tree.root_node.has_error:
            assert sites == find_sites(index.text)
    # Back to a text that parses: nothing of the damage remains.
    assert index.update(FILE) == find_sites(FILE)


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=300) | st.lists(st.sampled_from(FILE.split(" ")), max_size=60).map(" ".join)
)
def test_no_text_is_too_strange(text: str) -> None:
    index = SiteIndex(text)
    index.update([Edit(0, len(text) // 2, "@")])
    for offset in (0, len(index.text) // 2, len(index.text)):
        index.call_at(offset)
        index.selection(0, offset)


@pytest.mark.parametrize("text", ["", "\n", "\f", "\ufeff", "\0", "\ud800", "\r", "x" * 10])
def test_empty_and_binary_texts_have_no_sites(text: str) -> None:
    index = SiteIndex(text)
    assert index.sites() == ()
    assert [s.name for s in index.update(FILE)] == ["Net", "scale"]
    assert index.update(text) == ()


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["x"] * 3000),
        "(" * 2000 + "x" + ")" * 2000,
        "[" * 500 + "x" + "]" * 500,
        "-" * 3000 + "x",
        "x" + ".relu()" * 2000,
        "x if x else " * 1000 + "x",
        "lambda: " * 1000 + "x",
    ],
)
def test_deep_nesting_is_survived(expression: str) -> None:
    text = FILE + f"\n\ndef deep(x: torch.Tensor):\n    y = torch.exp(x)\n    z = {expression}\n"
    index = SiteIndex(text)
    assert ids(index.sites())[:2] == ["module:Net", "function:scale"]
    place = text.index("    z = ")
    index.call_at(place + 8)
    index.selection(place, len(text))
    for site in index.sites():
        build_reference(replace(site, missing=()), text, None)


def test_a_long_sum_is_read() -> None:
    text = HEADER + "def f(x: torch.Tensor):\n    return x" + " + x" * 3000 + "\n"
    assert find_sites(text)[0].operations == ("add",)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("prefix", ["", "\ufeff", "# 漢字 🙂\n", "s = '🙂'\n", "\f\n", "\f"])
def test_offsets_are_code_points(newline: str, prefix: str) -> None:
    text = (prefix + FILE).replace("\n", newline)
    net, scale = find_sites(text)
    assert text[net.start : net.end].replace(newline, "\n") == NET.rstrip("\n")
    assert text[scale.start : scale.end].replace(newline, "\n") == SCALE.rstrip("\n")


def test_emoji_and_tabs_before_the_operation() -> None:
    text = HEADER + "def f(x):\n\ts = '🙂漢'; y = torch.relu(x)\n\treturn y\n"
    site = SiteIndex(text).call_at(text.index("relu"))
    assert isinstance(site, Site)
    assert text[site.start : site.end] == "torch.relu(x)"


# Broken text -----------------------------------------------------------------------------------


def ids(sites: tuple[Site, ...]) -> list[str]:
    return [site.id for site in sites]


@pytest.mark.parametrize(
    "at, typed",
    [
        ("        y = F", "        z = foo(\n"),
        ("        y = F", "        z = [1, \n"),
        ("        y = F", "        z = 'abc\n"),
        ("        y = F", "        z =\n"),
        ("        y = F", "    def \n"),
        ("class Net", "def broken(:\n    pass\n"),
        ("class Net", "x = (\n"),
        ("class Net", "@\n"),
        ("def scale", "if \n"),
        ("def scale", "'''"),
        ("(nn.Module)", "("),
        ("forward(self", "("),
    ],
)
def test_last_good_sites_stay_while_the_text_is_broken(at: str, typed: str) -> None:
    index = SiteIndex(FILE)
    good = index.sites()
    offset = FILE.index(at)
    broken = index.update([Edit(offset, offset, typed)])
    assert ids(broken) == ids(good)
    for site in broken:
        # The lens stays on its own line.
        line = index.text[site.header :].split("\n")[0]
        assert line.startswith(("class Net", "def scale")), (site, line)
    # More typing while it is broken: they move along.
    moved = index.update([Edit(0, 0, "# a comment\n")])
    assert [s.start - b.start for s, b in zip(moved, broken, strict=True)] == [12, 12]
    assert index.update(FILE) == good


def test_typing_letter_by_letter_never_loses_a_site() -> None:
    index = SiteIndex(FILE)
    offset = FILE.index("        return y + 1")
    for letter in "        z = torch.cat([y, F.gelu(y)], dim=('a', \"b\")[0])\n":
        sites = index.update([Edit(offset, offset, letter)])
        offset += 1
        assert ids(sites)[:1] == ["module:Net"], index.text
        assert "function:scale" in ids(sites)
    assert "gelu" in index.sites()[0].operations


def test_a_replaced_beginning_moves_the_start_behind_it() -> None:
    index = SiteIndex(FILE)
    start = FILE.index("class Net")
    (net, _) = index.update([Edit(start - 1, start + 5, "\nfoo((")])
    assert index.text[net.start :].startswith(" Net(nn.Module)")
    assert net.end == index.text.index("y + 1") + 5


def test_deleted_sites_go_even_while_the_text_is_broken() -> None:
    index = SiteIndex(FILE)
    start = FILE.index("def scale")
    sites = index.update([Edit(0, 0, "x = (\n"), Edit(start + 6, start + 6 + len(SCALE), "")])
    assert ids(sites) == ["module:Net"]


def test_a_file_that_opens_broken_shows_what_parses() -> None:
    assert ids(find_sites(FILE + "\n\ndef late(x):\n    return torch.relu((x\n")) == [
        "module:Net",
        "function:scale",
    ]


# Identity --------------------------------------------------------------------------------------


def test_edits_elsewhere_change_no_identity() -> None:
    index = SiteIndex(FILE)
    before = index.sites()
    after = index.update([Edit(0, 0, "# a comment\nimport os\n\n")])
    shift = len("# a comment\nimport os\n\n")
    assert [s.shifted(-shift) for s in after] == list(before)


@pytest.mark.parametrize(
    "old, new, changed",
    [
        ("FACTOR = 2", "FACTOR = 3", ["scale"]),
        ("y + 1", "y + 2", ["Net"]),
        ("y + 1", "y + 1  ", []),
        ("        y = F", "        # why\n\n        y = F", []),
        ("        y = F", "        # musacoder: x: f32[2]\n        y = F", ["Net"]),
        ("    return a", "    return a + 1", []),
        ("import torch.nn.functional as F", "import torch.nn.functional as F  # x", []),
        ("\n", "\r\n", []),
    ],
)
def test_fingerprint_changes_with_what_matters(old: str, new: str, changed: list[str]) -> None:
    before = {s.name: s.fingerprint for s in find_sites(FILE)}
    text = FILE.replace(old, new)
    after = {s.name: s.fingerprint for s in find_sites(text)}
    incremental = {s.name: s.fingerprint for s in SiteIndex(FILE).update(text)}
    assert [name for name in before if before[name] != after[name]] == changed
    assert incremental == after


def test_helpers_count_transitively() -> None:
    text = HEADER + (
        "def a(x):\n    return torch.relu(x) + b(x)\ndef b(x):\n    return c(x)\n"
        "def c(x):\n    return x * K\nK = 1\n"
    )
    before, after = find_sites(text), find_sites(text.replace("K = 1", "K = 2"))
    assert before[0].fingerprint != after[0].fingerprint
    assert replace(before[0], fingerprint="") == replace(after[0], fingerprint="")


def test_changed_imports_are_followed_at_once() -> None:
    index = SiteIndex("import numpy as t\n" + "def f(x):\n    return t.exp(x)\n" * 2)
    assert index.sites() == ()
    assert ids(index.update([Edit(7, 12, "torch")])) == ["function:f", "function:f:2"]
    assert index.update([Edit(7, 12, "numpy")]) == ()


def test_a_base_that_becomes_a_module() -> None:
    text = (
        "from torch import nn\nclass A:\n    pass\nclass B(A):\n"
        "    def forward(self, x):\n        return nn.functional.relu(x)\n"
    )
    index = SiteIndex(text)
    assert ids(index.sites()) == ["function:B.forward"]
    assert ids(index.update(text.replace("class A:", "class A(nn.Module):"))) == ["module:B"]


def test_sites_can_cross_a_process_border() -> None:
    sites = find_sites(FILE)
    assert pickle.loads(pickle.dumps(sites)) == sites


def test_site_at_is_the_innermost() -> None:
    text = (
        HEADER
        + "class Outer(nn.Module):\n    "
        + NET.replace("\n", "\n    ")
        + ("\n    def forward(self, x):\n        return torch.exp(x)\n")
    )
    index = SiteIndex(text)
    inner = index.site_at(text.index("F.relu"))
    outer = index.site_at(text.index("torch.exp"))
    assert (inner and inner.name, outer and outer.name) == ("Outer.Net", "Outer")
    assert index.site_at(0) is None


def test_blocks_nested_deeper_than_the_stack() -> None:
    depth = 3000
    nest = "".join(" " * level + "if x:\n" for level in range(depth)) + " " * depth + "y = 1\n"
    code = "import torch\ndef f(x):\n    return torch.relu(x)\n"
    assert [site.name for site in find_sites(code + nest)] == ["f"]
