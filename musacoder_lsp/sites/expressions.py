"""Works out what each expression of a function is, and what it computes on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tree_sitter import Node

from musacoder_lsp.sites import operations
from musacoder_lsp.sites.hints import annotated
from musacoder_lsp.sites.names import ModuleNames, targets
from musacoder_lsp.sites.operations import Role, method_role, role_of
from musacoder_lsp.sites.syntax import field as child_of
from musacoder_lsp.sites.syntax import text_of
from musacoder_lsp.sites.value import (
    OTHER,
    SCALAR,
    SHAPE,
    TENSOR,
    TENSORS,
    UNKNOWN,
    Operation,
    Value,
)

_LITERALS = frozenset(
    {
        "integer", "float", "true", "false", "none", "string", "concatenated_string",
        "ellipsis",
    }
)  # fmt: skip
_WITH_DIM = frozenset({"max", "min", "median", "nanmedian", "cummax", "cummin"})
_SCALAR_CALLS = frozenset({"len", "int", "float", "bool", "str", "round", "math", "range"})
# Calls into these compute nothing on tensors that a kernel could.
_NO_HELPERS = (
    "torch.", "numpy.", "typing.", "functools.", "itertools.", "copy.", "logging.", "warnings.",
    "collections.", "os.", "sys.", "time.", "json.", "random.", "re.",
)  # fmt: skip
_TRAINING_METHODS = frozenset({"backward", "zero_grad"})


class Expressions:
    """Values of expressions, given those of the names before them.

    `values` are the parameters by name, `attributes` what `self.X` is. With `record` the Value of
    each expression is kept by its byte range, for a request about one place.
    """

    def __init__(
        self,
        data: bytes,
        names: ModuleNames,
        values: Mapping[str, Value],
        attributes: Mapping[str, Value] | None = None,
        *,
        record: bool = False,
    ) -> None:
        self._data = data
        self._names = names
        self.values: dict[str, Value] = dict(values)
        self._attributes = attributes or {}
        self.parameters = dict(values)
        self.calls_parameter = False
        self.operations: list[Operation] = []
        self.trains = False
        self.tensor_parameters: set[str] = {
            name for name, value in values.items() if value.kind in ("tensor", "tensors")
        }
        self.expressions: dict[tuple[int, int], Value] | None = {} if record else None

    def _bind(self, target: Node, value: Value) -> None:
        if target.type == "identifier":
            self.values[text_of(target, self._data)] = value
        elif target.type in ("pattern_list", "tuple_pattern", "list_pattern"):
            each = UNKNOWN
            if value.kind in ("tensor", "tensors"):
                each = TENSOR
            elif value.kind in ("shape", "scalar"):
                each = SCALAR
            for child in target.named_children:
                self._bind(child, each)
        elif target.type == "list_splat_pattern":
            for name in targets(target, self._data):
                self.values[name] = TENSORS if value.kind in ("tensor", "tensors") else UNKNOWN
        elif target.type == "subscript":
            owner = self.value(target)
            if owner == TENSOR:
                self._operation(target, "index_put", Role.COMPUTE)
        else:
            self.value(target)

    def _element(self, iterable: Node, value: Value) -> Value:
        if value.kind in ("tensor", "tensors"):
            return TENSOR
        if value.kind == "modules":
            return Value("module", value.dotted)
        if iterable.type == "call":
            function = child_of(iterable, "function")
            name = text_of(function, self._data) if function is not None else ""
            if name in ("range", "enumerate", "zip") and name not in self.values:
                return SCALAR if name == "range" else Value("elements")
        return SCALAR if value.kind == "shape" else UNKNOWN

    # Expressions -----------------------------------------------------------------------------

    def value(self, node: Node) -> Value:
        result = self._value(node)
        if self.expressions is not None:
            self.expressions[node.start_byte, node.end_byte] = result
        return result

    def _value(self, node: Node) -> Value:
        kind = node.type
        if kind == "identifier":
            return self._identifier(text_of(node, self._data))
        if kind in _LITERALS:
            if kind in ("string", "concatenated_string"):
                self._children(node)
            return SCALAR
        if kind == "call":
            return self._call(node)
        if kind == "attribute":
            return self._attribute(node)
        if kind in ("binary_operator", "comparison_operator"):
            return self._operator(node)
        if kind == "unary_operator":
            return self._unary(node)
        if kind == "subscript":
            return self._subscript(node)
        if kind in ("assignment", "augmented_assignment"):
            return self._assignment(node)
        if kind == "named_expression":
            name, value = child_of(node, "name"), child_of(node, "value")
            result = self.value(value) if value is not None else UNKNOWN
            if name is not None:
                self._bind(name, result)
            return result
        if kind in ("parenthesized_expression", "await", "keyword_argument", "list_splat"):
            inner = child_of(node, "value") or next(reversed(node.named_children), None)
            return self.value(inner) if inner is not None else UNKNOWN
        if kind == "conditional_expression":
            results = [self.value(child) for child in node.named_children]
            return TENSOR if TENSOR in (results[:1] + results[2:]) else results[0]
        if kind in ("tuple", "list", "expression_list", "set"):
            results = [self.value(child) for child in node.named_children]
            if any(r.kind in ("tensor", "tensors") for r in results):
                return TENSORS
            return SHAPE if all(r.kind in ("scalar", "shape") for r in results) else UNKNOWN
        if kind.endswith("_comprehension") or kind == "generator_expression":
            return self._comprehension(node)
        if kind == "not_operator":
            self._children(node)
            return SCALAR
        if kind == "boolean_operator":
            results = [self.value(child) for child in node.named_children]
            return TENSOR if TENSOR in results else results[-1] if results else UNKNOWN
        if kind == "lambda":
            return OTHER
        self._children(node)
        return UNKNOWN

    def _children(self, node: Node) -> None:
        for child in node.named_children:
            self.value(child)

    def _identifier(self, name: str) -> Value:
        known = self.values.get(name)
        if known is not None:
            return known
        dotted = self._names.lookup(name)
        return Value("name", dotted) if dotted else UNKNOWN

    def _attribute(self, node: Node) -> Value:
        owner_node, name_node = child_of(node, "object"), child_of(node, "attribute")
        if owner_node is None or name_node is None:
            return UNKNOWN
        owner = self.value(owner_node)
        name = text_of(name_node, self._data)
        if owner.kind == "self":
            return self._attributes.get(name, UNKNOWN)
        if owner.kind == "tensor":
            if name in ("shape",):
                return SHAPE
            if name in ("T", "mT", "H", "mH", "real", "imag"):
                self._operation(node, name, Role.VIEW)
                return TENSOR
            return TENSOR if name in ("data", "grad") else SCALAR
        if owner.kind == "module" and name in ("weight", "bias"):
            return TENSOR
        if owner.kind == "name" and owner.dotted:
            return Value("name", f"{owner.dotted}.{name}")
        return UNKNOWN

    def _operator(self, node: Node) -> Value:
        """A chain such as `a + b + c` is as deep as it is long, so it is not read by recursion."""
        chain = [node]
        while (left := child_of(chain[-1], "left")) and left.type == "binary_operator":
            chain.append(left)
        result: Value | None = None
        for link in reversed(chain):
            operands = link.named_children if result is None else link.named_children[1:]
            results = [] if result is None else [result]
            results += [self.value(operand) for operand in operands]
            result = self._operated(link, results)
            if self.expressions is not None:
                self.expressions[link.start_byte, link.end_byte] = result
        return result or UNKNOWN

    def _operated(self, node: Node, results: Sequence[Value]) -> Value:
        operator = child_of(node, "operator")
        if operator is None:
            operator = next((c for c in node.children if not c.is_named), None)
        name = text_of(operator, self._data) if operator is not None else ""
        if not any(result.kind == "tensor" for result in results):
            if all(result.kind in ("scalar", "shape") for result in results):
                return SHAPE if any(result.kind == "shape" for result in results) else SCALAR
            return TENSORS if any(result.kind == "tensors" for result in results) else UNKNOWN
        if name in ("is", "in", "not", "is not", "not in", "and", "or"):
            return SCALAR
        self._operation(node, operations.OPERATORS.get(name, name), Role.COMPUTE)
        return TENSOR

    def _unary(self, node: Node) -> Value:
        argument = child_of(node, "argument")
        result = self.value(argument) if argument is not None else UNKNOWN
        if result.kind == "tensor":
            sign = text_of(node.children[0], self._data)
            self._operation(node, {"-": "neg", "~": "bitwise_not"}.get(sign, "pos"), Role.COMPUTE)
        return result

    def _subscript(self, node: Node) -> Value:
        owner_node = child_of(node, "value")
        owner = self.value(owner_node) if owner_node is not None else UNKNOWN
        indices = [child for child in node.named_children if child != owner_node]
        results = [self.value(child) for child in indices]
        if owner.kind == "tensor":
            gathers = any(result.kind in ("tensor", "tensors") for result in results)
            self._operation(node, "index", Role.COMPUTE if gathers else Role.VIEW)
            return TENSOR
        if owner.kind == "tensors":
            return TENSORS if any(child.type == "slice" for child in indices) else TENSOR
        if owner.kind == "shape":
            return SHAPE if any(child.type == "slice" for child in indices) else SCALAR
        if owner.kind == "modules":
            return Value("module", owner.dotted)
        return UNKNOWN

    def _assignment(self, node: Node) -> Value:
        left, right = child_of(node, "left"), child_of(node, "right")
        result = self.value(right) if right is not None else UNKNOWN
        if left is None:
            return result
        if node.type == "augmented_assignment":
            old = self.value(left)
            if "tensor" in (old.kind, result.kind):
                operator = child_of(node, "operator")
                sign = text_of(operator, self._data)[:-1] if operator is not None else ""
                self._operation(node, operations.OPERATORS.get(sign, sign), Role.COMPUTE)
                result = TENSOR
            else:
                result = old
        elif right is None or result == UNKNOWN:
            annotation = child_of(node, "type")
            if annotation is not None:
                result = annotated(annotation, self._data, self._names, self.values) or result
                if right is None and left.type == "identifier":
                    return result
        self._bind(left, result)
        return result

    def _comprehension(self, node: Node) -> Value:
        shadowed = dict(self.values)
        for child in node.named_children:
            if child.type == "for_in_clause":
                left, right = child_of(child, "left"), child_of(child, "right")
                if left is not None and right is not None:
                    self._bind(left, self._element(right, self.value(right)))
            elif child.type == "if_clause":
                self._children(child)
        body = child_of(node, "body")
        result = self.value(body) if body is not None else UNKNOWN
        self.values = shadowed
        return TENSORS if result.kind in ("tensor", "tensors") else UNKNOWN

    # Calls -----------------------------------------------------------------------------------

    def _call(self, node: Node) -> Value:
        function, arguments = child_of(node, "function"), child_of(node, "arguments")
        if function is None or arguments is None:
            return UNKNOWN
        if function.type == "attribute":
            return self._method_call(node, function, arguments)
        callee = self.value(function)
        if callee in (UNKNOWN, OTHER) and text_of(function, self._data) in self.parameters:
            self.calls_parameter = True
        results = self._arguments(arguments)
        if callee.kind == "module":
            return self._outside_call(node, _last(callee.dotted) or "module", results)
        if callee.kind == "name" and callee.dotted:
            return self._named_call(node, callee.dotted, arguments, results)
        name = text_of(function, self._data)
        if callee == UNKNOWN and name in ("abs", "sum", "max", "min", "pow") and TENSOR in results:
            self._operation(node, name, Role.COMPUTE)
            return TENSOR
        if callee == UNKNOWN and name in _SCALAR_CALLS:
            return SCALAR
        if callee == UNKNOWN and name in ("list", "tuple", "reversed", "sorted"):
            return results[0] if results else SHAPE
        return UNKNOWN

    def _method_call(self, node: Node, function: Node, arguments: Node) -> Value:
        owner_node, name_node = child_of(function, "object"), child_of(function, "attribute")
        if owner_node is None or name_node is None:
            return UNKNOWN
        name = text_of(name_node, self._data)
        owner = self.value(owner_node)
        results = self._arguments(arguments)
        if name in _TRAINING_METHODS:
            self.trains = True
        if owner.kind == "unknown" and name in operations.TELLING_METHODS:
            owner = self._infer_tensor(owner_node)
        if owner.kind == "tensor":
            return self._tensor_method(node, name, arguments)
        if owner.kind == "self":
            return self._own_call(node, name, arguments, results)
        if owner.kind == "module":
            return self._outside_call(node, name, results)
        if owner.kind == "name" and owner.dotted:
            return self._named_call(node, f"{owner.dotted}.{name}", arguments, results)
        if owner.kind == "tensors" and name == "append":
            return OTHER
        if name == "append" and owner_node.type == "identifier" and TENSOR in results:
            self.values[text_of(owner_node, self._data)] = TENSORS
        return UNKNOWN

    def _arguments(self, arguments: Node) -> list[Value]:
        if arguments.type == "generator_expression":
            return [self.value(arguments)]
        return [self.value(c) for c in arguments.named_children if c.type != "comment"]

    def _own_call(self, node: Node, name: str, arguments: Node, results: list[Value]) -> Value:
        known = self._attributes.get(name, UNKNOWN)
        if known.kind == "name" and known.dotted:
            return self._named_call(node, known.dotted, arguments, results)
        if known.kind == "module":
            return self._outside_call(node, _last(known.dotted) or name, results)
        if known.kind == "tensor":
            return UNKNOWN
        if known.kind == "method":
            return TENSOR if any(r.kind in ("tensor", "tensors") for r in results) else UNKNOWN
        return self._outside_call(node, name, results)

    def _tensor_method(self, node: Node, name: str, arguments: Node) -> Value:
        role = method_role(name)
        if role is None:
            return SHAPE if name == "size" and not arguments.named_child_count else SCALAR
        self._operation(node, name, role)
        return TENSORS if _many(name, arguments, self._data, method=True) else TENSOR

    def _named_call(self, node: Node, dotted: str, arguments: Node, results: list[Value]) -> Value:
        name = _last(dotted)
        if dotted.startswith("@"):
            if self._names.is_module_class(dotted):
                return Value("module", dotted)
            return self._outside_call(node, name, results)
        if dotted in operations.CALLS_ITS_ARGUMENT:
            return self._outside_call(node, name, results[1:])
        role = role_of(dotted)
        if role is Role.TRAINING:
            self.trains = True
        elif role is Role.MODULE:
            return Value("module", dotted)
        elif role in (Role.PARAMETER, Role.TENSOR_TYPE):
            return TENSOR
        elif role is not None:
            self._infer_arguments(arguments, role)
            self._operation(node, name, role)
            return TENSORS if _many(name, arguments, self._data, method=False) else TENSOR
        elif dotted.startswith("math."):
            return SCALAR
        elif not dotted.startswith(_NO_HELPERS):
            return self._outside_call(node, name, results)
        return UNKNOWN

    def _outside_call(self, node: Node, name: str, results: list[Value]) -> Value:
        if not any(result.kind in ("tensor", "tensors") for result in results):
            return UNKNOWN
        self._operation(node, name, Role.COMPUTE, outside=True)
        return TENSOR

    def _infer_arguments(self, arguments: Node, role: Role) -> None:
        """The first argument of a computation is a tensor (or a list of tensors: left alone)."""
        if role is Role.CREATE or not arguments.named_children:
            return
        root = self._root(arguments.named_children[0])
        if root is not None:
            self._infer_tensor(root)

    def _root(self, node: Node) -> Node | None:
        """The name of unknown kind that an expression is made from: `x` in `x.pow(2) + eps`."""
        if self.value(node) != UNKNOWN:
            return None
        if node.type == "identifier":
            return node
        if node.type in ("binary_operator", "parenthesized_expression", "unary_operator"):
            roots = (self._root(child) for child in node.named_children)
            return next((root for root in roots if root is not None), None)
        if node.type == "call":
            function = child_of(node, "function")
            is_method = function is not None and function.type == "attribute"
            return self._root(function) if is_method and function is not None else None
        if node.type in ("attribute", "subscript"):
            owner = child_of(node, "object") or child_of(node, "value")
            return self._root(owner) if owner is not None else None
        return None

    def _infer_tensor(self, node: Node) -> Value:
        if node.type == "identifier":
            name = text_of(node, self._data)
            self.values[name] = TENSOR
            if name in self.parameters:
                self.tensor_parameters.add(name)
            if self.expressions is not None:
                self.expressions[node.start_byte, node.end_byte] = TENSOR
        return TENSOR

    def _operation(self, node: Node, name: str, role: Role, outside: bool = False) -> None:
        self.operations.append(Operation(node.start_byte, node.end_byte, name, role, outside))


def _last(dotted: str | None) -> str:
    return dotted.lstrip("@").rpartition(".")[2] if dotted else ""


def _many(name: str, arguments: Node, data: bytes, *, method: bool) -> bool:
    if name in _WITH_DIM:
        positional = [c for c in arguments.named_children if c.type != "keyword_argument"]
        for child in arguments.named_children:
            key = child_of(child, "name") if child.type == "keyword_argument" else None
            if key is not None and text_of(key, data) == "dim":
                return True
        if len(positional) < (1 if method else 2):
            return False
        return positional[0 if method else 1].type in ("integer", "unary_operator")
    return operations.gives_many(name)
