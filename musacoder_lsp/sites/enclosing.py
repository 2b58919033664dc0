"""The function around a place in the text."""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites import classes
from musacoder_lsp.sites.comments import definition_comments
from musacoder_lsp.sites.discover import read_function
from musacoder_lsp.sites.flow import Flow
from musacoder_lsp.sites.names import ModuleNames, base_names
from musacoder_lsp.sites.scoping import assigned_names
from musacoder_lsp.sites.signature import parameters
from musacoder_lsp.sites.syntax import ancestors, field, text_of
from musacoder_lsp.sites.value import Value
from musacoder_lsp.sites.workload import (
    TensorSpec,
    parse_annotations,
)


@dataclass(frozen=True, slots=True)
class Enclosing:
    """The function around a fragment, and its class when it is a method."""

    outer: Node
    function: Node
    owner: Node | None
    self_text: str | None
    is_module: bool
    flow: Flow


def enclosing_function(node: Node, data: bytes, names: ModuleNames) -> Enclosing | None:
    """The innermost function around (or at) the node, read through."""
    function = next((n for n in (node, *ancestors(node)) if n.type == "function_definition"), None)
    if function is None:
        return None
    outer = function
    if function.parent is not None and function.parent.type == "decorated_definition":
        outer = function.parent
    owner: Node | None = None
    block = outer.parent
    if block is not None and block.parent is not None and block.parent.type == "class_definition":
        owner = block.parent
    attributes: dict[str, Value] = {}
    self_text: str | None = None
    is_module = False
    if owner is not None and b"staticmethod" not in data[outer.start_byte : function.start_byte]:
        attributes = classes.attributes(owner, data, names)
        self_text = classes.self_name(function, data)
        bases = [names.resolve(b) or b for b in base_names(owner, data)]
        is_module = any(names.is_module_class(base) for base in bases) or "forward" in (
            classes.methods(owner, data)
        )
    comments = definition_comments(outer, function, data)
    told = {
        name
        for name, spec in parse_annotations(comments).inputs.items()
        if isinstance(spec, TensorSpec)
    }
    flow = read_function(
        function,
        data,
        names,
        attributes,
        forward=is_module and _name(function, data) == "forward",
        method=self_text is not None,
        tensors=told,
        record=True,
    )
    return Enclosing(outer, function, owner, self_text, is_module, flow)


def locals_around(function: Node, data: bytes) -> set[str]:
    """Names that functions around this one bind."""
    found: set[str] = set()
    for ancestor in ancestors(function):
        if ancestor.type == "function_definition":
            body = field(ancestor, "body")
            found |= {p.name for p in parameters(ancestor, data)}
            found |= assigned_names(body, data) if body is not None else set()
    return found


def _name(function: Node, data: bytes) -> str:
    name = field(function, "name")
    return text_of(name, data) if name is not None else ""
