"""Where the annotation comments of a definition or statement stand."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from musacoder_lsp.sites.syntax import field, text_of
from musacoder_lsp.sites.workload import Comment


def comments_start(data: bytes, byte: int) -> int:
    """Start of the block of comment lines right above the line of `byte`, else of that line."""
    start = data.rfind(b"\n", 0, byte) + 1
    while start:
        previous = data.rfind(b"\n", 0, start - 1) + 1
        if not data[previous : start - 1].lstrip().startswith(b"#"):
            break
        start = previous
    return start


def _above(node: Node, data: bytes) -> list[Comment]:
    line_start = data.rfind(b"\n", 0, node.start_byte) + 1
    start = comments_start(data, node.start_byte)
    texts = data[start:line_start].decode("utf-8", "replace").split("\n")[:-1]
    first = node.start_point[0] - len(texts)
    return [Comment(first + index, text.strip()) for index, text in enumerate(texts)]


def _within(definition: Node, data: bytes) -> Iterator[Comment]:
    """Comments among the parameters, behind the colon, and before the first statement."""
    for child in definition.children:
        if child.type == "comment":
            yield _comment(child, data)
        elif child.type == "parameters":
            for inner in child.children:
                if inner.type == "comment":
                    yield _comment(inner, data)
    body = field(definition, "body")
    for index, child in enumerate(body.named_children if body is not None else ()):
        if child.type == "comment":
            yield _comment(child, data)
        elif index or not _is_docstring(child):
            return


def _comment(node: Node, data: bytes) -> Comment:
    return Comment(node.start_point[0], text_of(node, data))


def _is_docstring(node: Node) -> bool:
    return (
        node.type == "expression_statement"
        and node.named_child_count == 1
        and node.named_children[0].type in ("string", "concatenated_string")
    )


def definition_comments(outer: Node, definition: Node, data: bytes) -> list[Comment]:
    """Comments that may annotate a class or function; `outer` includes its decorators. Lines are
    lines of `data`."""
    found = _above(outer, data)
    if outer != definition:
        found += _above(definition, data)
    found += _within(definition, data)
    return [comment for comment in found if "musacoder" in comment.text]


def statement_comments(statement: Node, data: bytes) -> list[Comment]:
    """Comments above a statement and behind it on its last line."""
    found = _above(statement, data)
    following = statement.next_sibling
    if (
        following is not None
        and following.type == "comment"
        and following.start_point[0] == statement.end_point[0]
    ):
        found.append(_comment(following, data))
    return [comment for comment in found if "musacoder" in comment.text]
