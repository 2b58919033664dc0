"""Which names of the surroundings a piece of code uses, and which it binds itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tree_sitter import Node

from musacoder_lsp.sites.names import bindings, imported, targets
from musacoder_lsp.sites.signature import parameter_nodes
from musacoder_lsp.sites.syntax import field, text_of

_FUNCTIONS = frozenset({"function_definition", "lambda"})
_COMPREHENSIONS = frozenset(
    {
        "list_comprehension",
        "set_comprehension",
        "dictionary_comprehension",
        "generator_expression",
    }
)


def free_names(node: Node, data: bytes) -> dict[str, Node]:
    """Names that the node reads from the scope around it, with the first place of each.

    For a statement of a module these are names of the module; builtins are among them.
    """
    found: dict[str, Node] = {}
    for name, place in _free(node, data, frozenset()):
        found.setdefault(name, place)
    return found


def loads(nodes: Iterable[Node], data: bytes) -> Iterator[tuple[str, Node]]:
    """Every read of a name, by nested functions too, that these statements do not bind inside a
    scope of their own. Names that the statements assign are included."""
    for node in nodes:
        yield from _free(node, data, frozenset())


def _free(node: Node, data: bytes, bound: frozenset[str]) -> Iterator[tuple[str, Node]]:
    kind = node.type
    if kind == "identifier":
        name = text_of(node, data)
        if name not in bound:
            yield name, node
    elif kind == "attribute":
        owner = field(node, "object")
        if owner is not None:
            yield from _free(owner, data, bound)
    elif kind == "keyword_argument":
        value = field(node, "value")
        if value is not None:
            yield from _free(value, data, bound)
    elif kind in _FUNCTIONS:
        yield from _free_of_function(node, data, bound)
    elif kind in _COMPREHENSIONS:
        names: set[str] = set()
        for clause in node.named_children:
            if clause.type == "for_in_clause":
                left = field(clause, "left")
                names.update(targets(left, data) if left is not None else ())
        for child in node.named_children:
            yield from _free(child, data, bound | names)
    elif kind == "class_definition":
        superclasses, body = field(node, "superclasses"), field(node, "body")
        for part in (superclasses, body):
            if part is not None:
                yield from _free(part, data, bound)
    elif kind in ("import_statement", "import_from_statement", "future_import_statement"):
        return
    elif kind in ("assignment", "for_statement", "for_in_clause", "named_expression"):
        left = field(node, "left") or field(node, "name")
        for child in node.named_children:
            if child != left or left.type not in ("identifier", "pattern_list", "tuple_pattern"):
                yield from _free(child, data, bound)
            elif left.type != "identifier":
                yield from _free_of_pattern(left, data, bound)
    elif kind in ("global_statement", "nonlocal_statement", "as_pattern_target"):
        return
    else:
        for child in node.named_children:
            yield from _free(child, data, bound)


def _free_of_pattern(node: Node, data: bytes, bound: frozenset[str]) -> Iterator[tuple[str, Node]]:
    for child in node.named_children:
        if child.type in ("pattern_list", "tuple_pattern", "list_pattern"):
            yield from _free_of_pattern(child, data, bound)
        elif child.type != "identifier":
            yield from _free(child, data, bound)


def _free_of_function(node: Node, data: bytes, bound: frozenset[str]) -> Iterator[tuple[str, Node]]:
    own = {name for name, _, _ in parameter_nodes(node, data)}
    signature = field(node, "parameters")
    for parameter in signature.named_children if signature is not None else ():
        for name in ("type", "value"):
            part = field(parameter, name)
            if part is not None:
                yield from _free(part, data, bound)
    returned = field(node, "return_type")
    if returned is not None:
        yield from _free(returned, data, bound)
    body = field(node, "body")
    if body is not None:
        own |= assigned_names(body, data) - declared_global(body, data)
        yield from _free(body, data, bound | own)


def assigned_names(node: Node, data: bytes) -> set[str]:
    """Names that a block binds in its own scope."""
    found: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        kind = current.type
        if kind in ("function_definition", "class_definition"):
            name = field(current, "name")
            if name is not None:
                found.add(text_of(name, data))
            continue
        if kind == "lambda" or kind in _COMPREHENSIONS:
            continue
        if kind in ("import_statement", "import_from_statement"):
            found.update(binding.name for binding in imported(current, data))
            continue
        if kind in ("assignment", "augmented_assignment", "for_statement"):
            left = field(current, "left")
            found.update(targets(left, data) if left is not None else ())
        elif kind == "named_expression":
            left = field(current, "name")
            found.update(targets(left, data) if left is not None else ())
        elif kind == "as_pattern_target":
            found.update(targets(current, data))
        stack.extend(current.named_children)
    return found


def declared_global(node: Node, data: bytes) -> set[str]:
    found: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type in ("global_statement", "nonlocal_statement"):
            found.update(text_of(child, data) for child in current.named_children)
        elif current.type not in ("function_definition", "class_definition", "lambda"):
            stack.extend(current.named_children)
    return found


def bound_at_top(node: Node, data: bytes) -> list[str]:
    """Names that a statement of the module binds or changes: `TABLE[0] = 1` changes `TABLE`."""
    found = [binding.name for binding in bindings(node, data)]
    if node.type == "expression_statement":
        for child in node.named_children:
            left = field(child, "left") if child.type.endswith("assignment") else None
            while left is not None and left.type in ("attribute", "subscript"):
                left = field(left, "object") or field(left, "value")
                if left is not None and left.type == "identifier":
                    found.append(text_of(left, data))
    return found
