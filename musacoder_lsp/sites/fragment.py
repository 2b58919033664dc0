"""Fragment: an expression or some statements of a function, with what it takes to run them alone.

What the fragment reads becomes an input (tensors), a constant (scalars that the text tells), or a
name that is missing; what the rest of the function reads of it becomes an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites import classes
from musacoder_lsp.sites.comments import definition_comments, statement_comments
from musacoder_lsp.sites.discover import required
from musacoder_lsp.sites.enclosing import Enclosing, locals_around
from musacoder_lsp.sites.init_slice import InitSlice, own_attributes, slice_init, uses_bare
from musacoder_lsp.sites.names import targets
from musacoder_lsp.sites.operations import Role
from musacoder_lsp.sites.scoping import assigned_names, loads
from musacoder_lsp.sites.signature import Parameter, parameters
from musacoder_lsp.sites.site import Refused
from musacoder_lsp.sites.syntax import ancestors, field, text_of, walk
from musacoder_lsp.sites.value import UNKNOWN, Value
from musacoder_lsp.sites.workload import (
    Annotations,
    Comment,
    Spec,
    TensorSpec,
    ValueSpec,
    jaxtyping_spec,
    parse_annotations,
)

_JUMPS = {
    "yield": "yields",
    "await": "awaits",
    "global_statement": "changes a global name",
    "nonlocal_statement": "changes a name of another function",
}
_LOOPS = ("for_statement", "while_statement")
_LITERALS = ("integer", "float", "true", "false", "none", "string", "unary_operator")


@dataclass(frozen=True, slots=True)
class Fragment:
    """`constants` are (name, Python text); `prelude` are statements of the function that derive
    scalars from inputs. With `whole_class` the model is a subclass of the method's class."""

    enclosing: Enclosing
    nodes: tuple[Node, ...]
    is_expression: bool
    operations: tuple[str, ...]
    inputs: tuple[tuple[str, Spec | None], ...]
    constants: tuple[tuple[str, str], ...]
    prelude: tuple[Node, ...]
    outputs: tuple[str, ...]
    module_names: frozenset[str]
    init: InitSlice
    whole_class: bool
    annotations: Annotations
    missing: tuple[str, ...]


def plan(enclosing: Enclosing, nodes: Sequence[Node], data: bytes) -> Fragment | Refused:
    """Works out the fragment made of one expression, or of statements of one block."""
    return _Planner(enclosing, nodes, data).plan()


class _Planner:
    def __init__(self, enclosing: Enclosing, nodes: Sequence[Node], data: bytes) -> None:
        self._enclosing = enclosing
        self._nodes = tuple(nodes)
        self._data = data
        self._start, self._end = nodes[0].start_byte, nodes[-1].end_byte
        self._is_expression = not _is_statement(nodes[0])
        self._function = enclosing.function
        self._self = enclosing.self_text
        self._parameters = {p.name: p for p in parameters(self._function, data)}
        self._body = field(self._function, "body") or self._function
        self._local = assigned_names(self._body, data) | self._parameters.keys()
        self._outer_local = locals_around(self._function, data)
        self._annotations = self._read_annotations()
        self._inputs: dict[str, Spec | None] = {}
        self._constants: dict[str, str] = {}
        self._prelude: list[Node] = []
        self._module_names: set[str] = set()
        self._missing: dict[str, None] = {}

    def plan(self) -> Fragment | Refused:
        refused = self._refuse()
        if refused is not None:
            return refused
        flow = self._enclosing.flow
        operations = dict.fromkeys(
            op.name
            for op in flow.operations
            if op.role is Role.COMPUTE and self._start <= op.start and op.end <= self._end
        )
        if not operations:
            return Refused("There is no tensor operation in the selection.")
        outputs = self._outputs()
        for name, place in self._reads(outputs):
            self._take(name, place)
        init, whole_class = self._own()
        if whole_class and not self._enclosing.is_module:
            return Refused(
                "The selection uses `self` of a class that is no nn.Module; "
                "pass what it needs as arguments first."
            )
        for spec in self._inputs.values():
            if spec is not None:
                self._missing.update(dict.fromkeys(self._annotations.unbound(spec)))
        return Fragment(
            self._enclosing,
            self._nodes,
            self._is_expression,
            tuple(operations),
            tuple(self._inputs.items()),
            tuple(self._constants.items()),
            tuple(sorted(self._prelude, key=lambda node: node.start_byte)),
            outputs,
            frozenset(self._module_names),
            init,
            whole_class,
            self._annotations,
            tuple(self._missing),
        )

    # Refusals --------------------------------------------------------------------------------

    def _refuse(self) -> Refused | None:
        for node in self._nodes:
            if node.has_error:
                return Refused("The selection has a syntax error; correct it first.")
            for inner in walk(node):
                if inner.type in _JUMPS:
                    return Refused(f"The selection {_JUMPS[inner.type]}, so it cannot run alone.")
                if inner.type == "identifier" and text_of(inner, self._data) == "super":
                    return Refused("The selection calls super(), which only its own class can.")
                owner = field(inner, "left") if inner.type.endswith("assignment") else None
                if owner is not None and self._is_own(owner):
                    name = text_of(owner, self._data)
                    return Refused(f"The selection changes `{name}`; a kernel keeps no state.")
                returns = inner.type == "return_statement" and inner != self._nodes[-1]
                if returns and not self._inside_nested(inner):
                    return Refused("The selection returns in the middle; select less.")
                if inner.type in ("break_statement", "continue_statement") and not any(
                    n.type in _LOOPS and self._start <= n.start_byte for n in ancestors(inner)
                ):
                    return Refused("The selection leaves a loop that is not selected.")
        return None

    def _is_own(self, target: Node) -> bool:
        """`self.X`, or a part of it."""
        node: Node | None = target
        while node is not None and node.type in ("attribute", "subscript"):
            node = field(node, "object") or field(node, "value")
        return node is not None and node != target and text_of(node, self._data) == self._self

    def _inside_nested(self, node: Node) -> bool:
        for ancestor in ancestors(node):
            if ancestor.start_byte < self._start:
                return False
            if ancestor.type == "function_definition":
                return True
        return False

    # What goes out ---------------------------------------------------------------------------

    def _outputs(self) -> tuple[str, ...]:
        if self._is_expression or self._nodes[-1].type == "return_statement":
            return ()
        changed = {n: None for node in self._nodes for n in self._changed(node)}
        after = set()
        loop = next((n for n in ancestors(self._nodes[0]) if n.type in _LOOPS), None)
        again = loop.start_byte if loop is not None and loop != self._function else self._end
        for name, place in loads([self._body], self._data):
            in_loop = again <= place.start_byte < self._start
            if place.start_byte >= self._end or in_loop:
                after.add(name)
        used = tuple(name for name in changed if name in after)
        return used or tuple(changed)[-1:]

    def _changed(self, node: Node) -> dict[str, None]:
        """Names that a statement binds or writes into, in order."""
        found: dict[str, None] = {}
        for current in walk(node):
            left: Node | None = None
            if current.type in ("assignment", "augmented_assignment", "for_statement"):
                left = field(current, "left")
            elif current.type == "named_expression":
                left = field(current, "name")
            elif current.type == "call":
                left = _written_in_place(current, self._data)
            while left is not None and left.type in ("subscript", "attribute"):
                left = field(left, "value") or field(left, "object")
            if left is not None:
                found.update(dict.fromkeys(targets(left, self._data)))
        scope = assigned_names(node, self._data) | self._local
        return {name: None for name in found if name in scope and name != self._self}

    # What goes in ----------------------------------------------------------------------------

    def _reads(self, outputs: Sequence[str]) -> list[tuple[str, Node]]:
        """Names that the fragment takes from outside, with their first place."""
        found: dict[str, Node] = {}
        bound: set[str] = set()
        sure: set[str] = set()
        for node in self._nodes:
            for name, place in loads([node], self._data):
                if name not in bound or (name not in sure and self._bound_before(name)):
                    found.setdefault(name, place)
            assigned = assigned_names(node, self._data)
            bound |= assigned
            if node.type == "expression_statement":
                sure |= assigned
        for name in outputs:
            if name not in sure and self._bound_before(name):
                # On the path that does not assign it the old value comes out.
                found.setdefault(name, self._nodes[0])
        return [
            (name, place)
            for name, place in found.items()
            if name != self._self and (name not in bound or self._bound_before(name))
        ]

    def _bound_before(self, name: str) -> bool:
        if name in self._parameters:
            return True
        return any(True for _ in self._assignments(name, self._start))

    def _assignments(self, name: str, before: int) -> list[Node]:
        """Statements before a place that bind the name, in order; loops around count as one."""
        found: list[Node] = []
        stack = list(reversed(self._body.named_children))
        while stack:
            node = stack.pop()
            if node.start_byte >= before:
                continue
            if node.end_byte > before or node.type.endswith(("_clause", "block")):
                if node.type == "for_statement":
                    left = field(node, "left")
                    if left is not None and name in set(targets(left, self._data)):
                        found.append(node)
                stack.extend(reversed(node.named_children))
            elif name in assigned_names(node, self._data):
                found.append(node)
        return found

    def _take(self, name: str, place: Node) -> None:
        if name not in self._local and name not in self._outer_local:
            self._module_names.add(name)
            return
        spec = self._annotations.spec(name)
        parameter = self._parameters.get(name)
        assignments = self._assignments(name, self._start)
        if spec is None and parameter is not None and not assignments:
            spec = jaxtyping_spec(parameter.annotation)
        if isinstance(spec, ValueSpec):
            self._constants[name] = spec.text
            return
        value = self._value(place)
        told = spec is not None or value.kind in ("tensor", "tensors")
        if not told and self._known(name, parameter, assignments):
            return
        self._inputs[name] = spec
        if spec is None or (
            isinstance(spec, TensorSpec) and spec.dtype.startswith("int") and spec.high is None
        ):
            self._missing[name] = None

    def _value(self, place: Node) -> Value:
        expressions = self._enclosing.flow.expressions or {}
        return expressions.get((place.start_byte, place.end_byte), UNKNOWN)

    def _known(self, name: str, parameter: Parameter | None, assignments: Sequence[Node]) -> bool:
        """Makes a constant or a copied statement of a scalar, when the text tells its value."""
        if not assignments:
            if parameter is None or parameter.default is None:
                return False
            node = self._default_node(name)
            if node is None or node.type not in _LITERALS:
                return False
            self._constants[name] = parameter.default
            return True
        if len(assignments) > 1 or parameter is not None:
            return False
        statement = assignments[0]
        if statement in self._prelude:
            return True
        if statement.type in ("import_statement", "import_from_statement"):
            self._prelude.append(statement)
            return True
        return self._derived(statement)

    def _default_node(self, name: str) -> Node | None:
        node = field(self._function, "parameters")
        for child in node.named_children if node is not None else ():
            name_node = field(child, "name")
            if name_node is not None and text_of(name_node, self._data) == name:
                return field(child, "value")
        return None

    def _derived(self, statement: Node) -> bool:
        """A scalar computed from shapes, constants and other such scalars."""
        if statement.type != "expression_statement" or not statement.named_child_count:
            return False
        assignment = statement.named_children[0]
        right = field(assignment, "right") if assignment.type == "assignment" else None
        block = statement.parent
        if right is None or block is None:
            return False
        inside = block == self._body or block.start_byte <= self._start < block.end_byte
        if not inside or self._value(right).kind not in ("scalar", "shape"):
            return False
        reads = list(loads([right], self._data))
        for name, _ in reads:
            if name in self._local and name != self._self:
                between = self._assignments(name, self._start)
                if any(node.start_byte > statement.start_byte for node in between):
                    return False
        self._prelude.append(statement)
        for name, place in reads:
            if name != self._self and name not in self._inputs and name not in self._constants:
                self._take(name, place)
        return True

    # `self` ----------------------------------------------------------------------------------

    def _own(self) -> tuple[InitSlice, bool]:
        self_text, owner = self._self, self._enclosing.owner
        if self_text is None or owner is None:
            return InitSlice(), False
        pieces = (*self._nodes, *self._prelude)
        attributes: dict[str, None] = {}
        bare = False
        for node in pieces:
            attributes.update(own_attributes(node, self._data, self_text))
            bare = bare or uses_bare(node, self._data, self_text)
        if not attributes and not bare:
            return InitSlice(), False
        own = classes.methods(owner, self._data)
        init = slice_init(own.get("__init__"), attributes, self._data)
        whole = bare or bool(init.unknown)
        needed = init.parameters
        if whole and "__init__" in own:
            needed = parameters(own["__init__"].node, self._data)[1:]
            init = InitSlice(parameters=needed)
        if not whole:
            self._module_names |= init.module_names
        for parameter in needed:
            if required(parameter) and parameter.name not in self._annotations.init:
                self._missing[parameter.name] = None
        return init, whole

    def _read_annotations(self) -> Annotations:
        """Comments of the class, of the function, of the statement: the nearest wins."""
        comments = []
        owner = self._enclosing.owner
        if owner is not None:
            outer = owner
            if owner.parent is not None and owner.parent.type == "decorated_definition":
                outer = owner.parent
            comments += definition_comments(outer, owner, self._data)
            own = classes.methods(owner, self._data)
            if "__init__" in own:
                init = own["__init__"]
                comments += definition_comments(init.outer, init.node, self._data)
        comments += definition_comments(self._enclosing.outer, self._function, self._data)
        if b"musacoder" in self._data[self._function.start_byte : self._function.end_byte]:
            comments += [
                Comment(node.start_point[0], text_of(node, self._data))
                for node in walk(self._body)
                if node.type == "comment"
            ]
        for node in self._nodes:
            statement = node
            while not _is_statement(statement) and statement.parent is not None:
                statement = statement.parent
            comments += statement_comments(statement, self._data)
        return parse_annotations(comments)


def _is_statement(node: Node) -> bool:
    return node.type.endswith("_statement") or node.type.endswith("_definition")


def _written_in_place(call: Node, data: bytes) -> Node | None:
    """The tensor that `x.add_(y)` changes."""
    function = field(call, "function")
    if function is None or function.type != "attribute":
        return None
    name = field(function, "attribute")
    text = text_of(name, data) if name is not None else ""
    in_place = text.endswith("_") and not text.endswith("__")
    return field(function, "object") if in_place else None
