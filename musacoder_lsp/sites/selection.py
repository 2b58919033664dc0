"""Sites on request: one call under a cursor, or a selection of statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites.document import Document
from musacoder_lsp.sites.enclosing import Enclosing, enclosing_function
from musacoder_lsp.sites.fragment import Fragment, plan
from musacoder_lsp.sites.names import ModuleNames
from musacoder_lsp.sites.operations import Role
from musacoder_lsp.sites.site import Kind, Refused, Site
from musacoder_lsp.sites.syntax import ancestors, definition_of, field, innermost, text_of
from musacoder_lsp.sites.value import Operation

_OUTSIDE = Refused("A call or a selection becomes a kernel only inside a function or method.")


@dataclass(frozen=True, slots=True)
class Place:
    """A parsed module to look in; `digest` makes a fingerprint of texts and what they use."""

    document: Document
    root: Node
    names: ModuleNames
    digest: Callable[[Sequence[bytes]], str]


def call_site(place: Place, offset: int) -> Site | Refused:
    data = place.document.data
    byte = place.document.byte(offset)
    node = innermost(place.root, byte, byte)
    enclosing = enclosing_function(node, data, place.names)
    if enclosing is None:
        return _OUTSIDE
    computed = _computed(enclosing)
    around = [op for op in computed if op.start <= byte <= op.end]
    if not around:
        return Refused("There is no tensor operation here.")
    operation = min(around, key=lambda op: (op.end - op.start, op.start))
    expression = innermost(place.root, operation.start, operation.end)
    if expression.type == "augmented_assignment" and expression.parent is not None:
        expression = expression.parent
    planned = plan(enclosing, [expression], data)
    if isinstance(planned, Refused):
        return planned
    same = [op.start for op in computed if op.name == operation.name]
    name = f"{qualified_name(enclosing.function, data)}: {operation.name}"
    ordinal = same.index(operation.start) + 1
    identity = f"call:{qualified_name(enclosing.function, data)}:{operation.name}:{ordinal}"
    return _site(place, "call", identity, name, planned)


def selection_site(place: Place, start: int, end: int) -> Site | Refused:
    text = place.document.text
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start == end:
        return Refused("Nothing is selected.")
    data = place.document.data
    first, last = place.document.byte(start), place.document.byte(end)
    node = innermost(place.root, first, last)
    enclosing = enclosing_function(node, data, place.names)
    if enclosing is None:
        return _OUTSIDE
    nodes = _selected(node, enclosing, first, last)
    if not nodes:
        return Refused("The selection holds no statement of a function.")
    planned = plan(enclosing, nodes, data)
    if isinstance(planned, Refused):
        return planned
    name = qualified_name(enclosing.function, data)
    own = place.digest([data[nodes[0].start_byte : nodes[-1].end_byte]])
    return _site(place, "selection", f"selection:{name}:{own[:12]}", f"{name}: selection", planned)


def fragment_at(place: Place, site: Site) -> Fragment | Refused:
    """The fragment of a call or selection Site, in the text that the Site was found in."""
    data = place.document.data
    first, last = place.document.byte(site.start), place.document.byte(site.end)
    node = innermost(place.root, first, last)
    enclosing = enclosing_function(node, data, place.names)
    nodes = _selected(node, enclosing, first, last) if enclosing is not None else []
    if enclosing is None or not nodes:
        return Refused(f"{site.name} is no longer where it was; wait for the next analysis.")
    return plan(enclosing, nodes, data)


def enclosing_definition(place: Place, start: int, end: int) -> tuple[int, int] | None:
    """Extents of the class or function that the range covers, blanks aside."""
    text = place.document.text[start:end]
    start += len(text) - len(text.lstrip())
    end -= len(text) - len(text.rstrip())
    if start >= end:
        return None
    node: Node | None = innermost(place.root, place.document.byte(start), place.document.byte(end))
    while node is not None and definition_of(node) is None:
        node = node.parent if node.parent is not None and _same_extent(node) else None
    if node is None:
        return None
    if node.parent is not None and node.parent.type == "decorated_definition":
        node = node.parent
    found = place.document.offset(node.start_byte), place.document.offset(node.end_byte)
    return found if start <= found[0] and found[1] <= end else None


def _same_extent(node: Node) -> bool:
    parent = node.parent
    return parent is not None and (node.start_byte, node.end_byte) == (
        parent.start_byte,
        parent.end_byte,
    )


def _selected(node: Node, enclosing: Enclosing, first: int, last: int) -> list[Node]:
    """The one expression that the range is, or the statements that it touches."""
    body = field(enclosing.function, "body")
    if body is None:
        return []
    if (node.start_byte, node.end_byte) == (first, last) and _is_expression(node):
        return [node]
    block = node
    while block.type != "block":
        if block.parent is None or block == enclosing.function:
            return []
        block = block.parent
    return [
        child
        for child in block.named_children
        if child.start_byte < last and child.end_byte > first and child.type != "comment"
    ]


def _is_expression(node: Node) -> bool:
    """A value of its own: not a statement, a block, the target of an assignment, or an argument."""
    if node.type.endswith(("_statement", "_definition", "block", "assignment", "_clause")):
        return False
    parent = node.parent
    if parent is None or node.type in ("argument_list", "keyword_argument", "parameters"):
        return False
    if parent.type == "expression_statement":
        # A statement that only has a value is selected as a statement.
        return node.type != "assignment"
    return field(parent, "left") != node


def _computed(enclosing: Enclosing) -> list[Operation]:
    return sorted(
        (op for op in enclosing.flow.operations if op.role is Role.COMPUTE),
        key=lambda op: (op.start, -op.end),
    )


def _site(place: Place, kind: Kind, identity: str, name: str, planned: Fragment) -> Site:
    document, data = place.document, place.document.data
    start, end = planned.nodes[0].start_byte, planned.nodes[-1].end_byte
    enclosing = planned.enclosing
    texts = [data[start:end]]
    signature = field(enclosing.function, "parameters")
    texts += [_text(node, data) for node in (signature, *planned.prelude) if node is not None]
    texts += [_text(node, data) for node in planned.init.statements]
    if planned.whole_class and enclosing.owner is not None:
        texts.append(_text(enclosing.owner, data))
    texts.append(repr((planned.inputs, planned.constants, planned.annotations.init)).encode())
    problem = next(iter(planned.annotations.problems), None)
    first = document.offset(start)
    return Site(
        identity,
        kind,
        name,
        first,
        document.offset(end),
        document.line_start(first),
        planned.operations,
        planned.missing,
        place.digest(texts),
        None if planned.missing or problem is not None else "annotation",
        f"Line {problem.line + 1}: {problem.message}" if problem is not None else None,
    )


def _text(node: Node, data: bytes) -> bytes:
    return data[node.start_byte : node.end_byte]


def qualified_name(function: Node, data: bytes) -> str:
    parts: list[str] = []
    for node in (function, *ancestors(function)):
        if node.type in ("function_definition", "class_definition"):
            name = field(node, "name")
            if parts and node.type == "function_definition":
                parts.append("<locals>")
            parts.append(text_of(name, data) if name is not None else "?")
    return ".".join(reversed(parts))
