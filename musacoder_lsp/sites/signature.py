"""Parameters of a function as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tree_sitter import Node

from musacoder_lsp.sites.syntax import field, text_of


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: Literal["positional", "keyword", "*", "**"] = "positional"
    annotation: str | None = None
    default: str | None = None


def parameters(function: Node, data: bytes) -> tuple[Parameter, ...]:
    """All parameters, `self` included; empty when the signature does not parse."""
    node = field(function, "parameters")
    return tuple(_parameters(node, data)) if node is not None else ()


def parameter_nodes(function: Node, data: bytes) -> Iterator[tuple[str, Node | None, Node]]:
    """Name, annotation node, parameter node."""
    node = field(function, "parameters")
    for child in node.named_children if node is not None else ():
        name = _name_node(child)
        if name is not None:
            yield text_of(name, data), field(child, "type"), child


def _name_node(node: Node) -> Node | None:
    if node.type == "identifier":
        return node
    if node.type in ("default_parameter", "typed_default_parameter"):
        return field(node, "name")
    if node.type in ("typed_parameter", "list_splat_pattern", "dictionary_splat_pattern"):
        return _name_node(node.named_children[0]) if node.named_children else None
    return None


def _parameters(node: Node, data: bytes) -> Iterator[Parameter]:
    keyword_only = False
    for child in node.named_children:
        if child.type == "keyword_separator":
            keyword_only = True
            continue
        name = _name_node(child)
        if name is None:
            continue
        text = text_of(name, data)
        annotation, default = field(child, "type"), field(child, "value")
        annotation_text = text_of(annotation, data) if annotation is not None else None
        star = child.type if child.type.endswith("splat_pattern") else ""
        if child.type == "typed_parameter" and child.named_children[0].type != "identifier":
            star = child.named_children[0].type
        if star == "list_splat_pattern":
            keyword_only = True
            yield Parameter(text, "*", annotation_text)
        elif star == "dictionary_splat_pattern":
            yield Parameter(text, "**", annotation_text)
        else:
            yield Parameter(
                text,
                "keyword" if keyword_only else "positional",
                annotation_text,
                text_of(default, data) if default is not None else None,
            )
