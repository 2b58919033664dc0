"""What the attributes of a class are, read from its assignments to `self`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites.flow import Flow
from musacoder_lsp.sites.hints import annotated
from musacoder_lsp.sites.names import ModuleNames
from musacoder_lsp.sites.signature import parameter_nodes
from musacoder_lsp.sites.syntax import definition_of, field, text_of
from musacoder_lsp.sites.value import OTHER, SCALAR, UNKNOWN, Value

_CONTAINERS = frozenset({"torch.nn.ModuleList", "torch.nn.ModuleDict"})


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    outer: Node  # with decorators
    node: Node

    def decorated_with(self, name: str, data: bytes) -> bool:
        if self.outer == self.node:
            return False
        return any(
            text_of(child, data).lstrip("@ ").startswith(name)
            for child in self.outer.named_children
            if child.type == "decorator"
        )


def methods(definition: Node, data: bytes) -> dict[str, Method]:
    """Methods of a class by name; of several with one name the last counts, as in Python."""
    found: dict[str, Method] = {}
    body = field(definition, "body")
    for child in body.named_children if body is not None else ():
        inner = definition_of(child)
        if inner is not None and inner.type == "function_definition":
            name = field(inner, "name")
            if name is not None:
                found[text_of(name, data)] = Method(text_of(name, data), child, inner)
    return found


def self_name(method: Node, data: bytes) -> str:
    for name, _, _ in parameter_nodes(method, data):
        return name
    return "self"


def own_assignments(method: Node, data: bytes) -> Iterator[tuple[str, Node, Node]]:
    """(attribute, value, statement) of each `self.attribute = value` in the method."""
    self_text = self_name(method, data)
    body = field(method, "body")
    stack = [body] if body is not None else []
    while stack:
        node = stack.pop()
        if node.type in ("function_definition", "class_definition", "lambda"):
            continue
        if node.type == "assignment":
            right = field(node, "right")
            attribute = _own_attribute(field(node, "left"), data, self_text)
            if attribute is not None and right is not None:
                yield attribute, right, node
            if right is not None and right.type == "assignment":
                stack.append(right)
        elif node.type == "call":
            registered = _registered(node, data, self_text)
            if registered is not None:
                yield registered[0], registered[1], node
        else:
            stack.extend(reversed(node.named_children))


def _own_attribute(node: Node | None, data: bytes, self_text: str) -> str | None:
    if node is None or node.type != "attribute":
        return None
    owner, name = field(node, "object"), field(node, "attribute")
    if owner is None or name is None or text_of(owner, data) != self_text:
        return None
    return text_of(name, data)


def _registered(call: Node, data: bytes, self_text: str) -> tuple[str, Node] | None:
    """`self.register_buffer("name", value)` and its sisters."""
    function, arguments = field(call, "function"), field(call, "arguments")
    method = _own_attribute(function, data, self_text)
    if method not in ("register_buffer", "register_parameter", "add_module"):
        return None
    if arguments is None or arguments.named_child_count < 2:
        return None
    name, value = arguments.named_children[:2]
    if name.type != "string":
        return None
    return text_of(name, data).strip("\"'"), value


def attributes(definition: Node, data: bytes, names: ModuleNames) -> dict[str, Value]:
    """Value of each attribute of `self`; a method has the kind `method`."""
    found: dict[str, Value] = {}
    body = field(definition, "body")
    for child in body.named_children if body is not None else ():
        if child.type == "expression_statement" and child.named_child_count:
            _class_level(child.named_children[0], data, names, found)
    own = methods(definition, data)
    ordered = sorted(own.values(), key=lambda method: method.name != "__init__")
    for method in ordered:
        flow = Flow(data, names, {})
        for attribute, right, _ in own_assignments(method.node, data):
            value = _attribute_value(right, data, names, flow)
            if attribute not in found or found[attribute] == UNKNOWN:
                found[attribute] = value
    for name in own:
        found[name] = Value("method")
    return found


def _class_level(node: Node, data: bytes, names: ModuleNames, found: dict[str, Value]) -> None:
    if node.type != "assignment":
        return
    left, annotation = field(node, "left"), field(node, "type")
    right = field(node, "right")
    if left is None or left.type != "identifier":
        return
    value = annotated(annotation, data, names, {}) if annotation is not None else None
    if value is None and right is not None and right.type in ("integer", "float", "true", "false"):
        value = SCALAR
    found[text_of(left, data)] = value or UNKNOWN


def _attribute_value(right: Node, data: bytes, names: ModuleNames, flow: Flow) -> Value:
    value = flow.value(right)
    if value.kind == "module" and value.dotted in _CONTAINERS:
        return Value("modules", _element_class(right, flow))
    if value.kind == "name" and value.dotted and value.dotted.startswith("torch."):
        return value
    if value.kind in ("module", "modules", "tensor", "tensors", "scalar"):
        return value
    return OTHER if value == OTHER else UNKNOWN


def _element_class(call: Node, flow: Flow) -> str | None:
    """Class of the first module in a ModuleList."""
    stack = list(reversed(call.named_children))
    while stack:
        node = stack.pop()
        if node.type == "call":
            value = flow.value(node)
            if value.kind == "module" and value.dotted not in _CONTAINERS:
                return value.dotted
        stack.extend(reversed(node.named_children))
    return None
