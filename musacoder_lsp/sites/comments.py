"""Where the annotation comments of a definition or statement stand."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from musacoder_lsp.sites.syntax import field, text_of
from musacoder_lsp.sites.workload import Comment


def comments_above(data: bytes, byte: int) -> tuple[int, list[tuple[int, str]]]:
    """The block of comment lines that ends right above the line of `byte`.

    Gives the byte where the block starts (the line of `byte` itself when there is none) and the
    comments as (byte, text).
    """
    start = data.rfind(b"\n", 0, byte) + 1
    found: list[tuple[int, str]] = []
    while start:
        previous = data.rfind(b"\n", 0, start - 1) + 1
        line = data[previous : start - 1]
        if not line.lstrip().startswith(b"#"):
            break
        found.append((previous, line.decode("utf-8", "replace").strip()))
        start = previous
    return start, found[::-1]


def _within(definition: Node, data: bytes) -> Iterator[tuple[int, str]]:
    """Comments among the parameters, behind the colon, and before the first statement."""
    for child in definition.children:
        if child.type == "comment":
            yield child.start_byte, text_of(child, data)
        elif child.type == "parameters":
            for inner in child.children:
                if inner.type == "comment":
                    yield inner.start_byte, text_of(inner, data)
    body = field(definition, "body")
    for index, child in enumerate(body.named_children if body is not None else ()):
        if child.type == "comment":
            yield child.start_byte, text_of(child, data)
        elif index or not _is_docstring(child):
            # A comment behind the last statement of the header's line belongs to that statement.
            return


def _is_docstring(node: Node) -> bool:
    return (
        node.type == "expression_statement"
        and node.named_child_count == 1
        and node.named_children[0].type in ("string", "concatenated_string")
    )


def definition_comments(outer: Node, definition: Node, data: bytes) -> list[Comment]:
    """Comments that may annotate a class or function; `outer` includes its decorators. Lines are
    lines of `data`."""
    if b"musacoder" not in data:
        return []
    found = comments_above(data, outer.start_byte)[1]
    if outer != definition:
        found += comments_above(data, definition.start_byte)[1]
    found += _within(definition, data)
    return [
        Comment(data.count(b"\n", 0, byte), text) for byte, text in found if "musacoder" in text
    ]


def statement_comments(statement: Node, data: bytes) -> list[Comment]:
    """Comments above a statement and behind it on its last line."""
    found = comments_above(data, statement.start_byte)[1]
    following = statement.next_sibling
    if (
        following is not None
        and following.type == "comment"
        and following.start_point[0] == statement.end_point[0]
    ):
        found.append((following.start_byte, text_of(following, data)))
    return [Comment(data.count(b"\n", 0, byte), text) for byte, text in found]
