"""Finds the Sites in one statement of a module: a class, a function, or what contains them.

Works on the statement's own bytes and tree, with the module's names to resolve in, so that the
result can be kept while the rest of the file changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites import classes
from musacoder_lsp.sites.comments import comments_start, definition_comments
from musacoder_lsp.sites.flow import Flow
from musacoder_lsp.sites.hints import annotated
from musacoder_lsp.sites.names import ModuleNames, base_names, dotted_text
from musacoder_lsp.sites.operations import Role
from musacoder_lsp.sites.scoping import assigned_names
from musacoder_lsp.sites.signature import Parameter, parameter_nodes, parameters
from musacoder_lsp.sites.site import Kind
from musacoder_lsp.sites.syntax import definition_of, field, text_of
from musacoder_lsp.sites.value import OTHER, SCALAR, SELF, TENSOR, UNKNOWN, Value
from musacoder_lsp.sites.workload import (
    Annotations,
    Problem,
    TensorSpec,
    jaxtyping_spec,
    parse_annotations,
)

# Functions with a meaning of their own: conventions of KernelBench, entry points, tests.
_NO_KERNEL = re.compile(r"get_inputs|get_init_inputs|main|test.*|__\w+__|setup|teardown")
_OWN_CALL = re.compile(rb"\.\s*([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True, slots=True)
class Found:
    """A Site before it has its place in the file; byte offsets in the data it was found in.

    `text_start` is where its annotation comments begin. `inherits` is the class whose `forward` it
    takes over; `needs_init` says that its constructor has arguments without a default.
    """

    kind: Kind
    name: str
    start: int
    end: int
    header: int
    text_start: int
    operations: tuple[str, ...]
    missing: tuple[str, ...]
    annotated: bool
    problem: Problem | None
    inherits: str | None = None
    needs_init: bool = False
    forward_arguments: int = 0


def discover(statement: Node, data: bytes, names: ModuleNames, *, tests: bool) -> list[Found]:
    """Sites of a statement at the top of a module. `tests`: the file is a test file, in which only
    module classes count."""
    return list(_Discovery(data, names, tests).scan(statement, "", in_class=None))


class _Discovery:
    def __init__(self, data: bytes, names: ModuleNames, tests: bool) -> None:
        self._data = data
        self._names = names
        self._tests = tests
        self._attributes: dict[int, Mapping[str, Value]] = {}

    def scan(self, node: Node, prefix: str, in_class: Node | None) -> Iterator[Found]:
        definition = definition_of(node)
        if definition is None:
            if node.type.endswith(("_statement", "_clause", "block")):
                for child in node.named_children:
                    yield from self.scan(child, prefix, in_class)
            return
        name_node = field(definition, "name")
        if name_node is None or definition.has_error:
            if definition.type == "class_definition" and field(definition, "body") is not None:
                yield from self._damaged(definition, prefix)
            return
        name = prefix + text_of(name_node, self._data)
        if definition.type == "class_definition":
            yield from self._class(node, definition, name)
        else:
            yield from self._function(node, definition, name, in_class)

    def _damaged(self, definition: Node, prefix: str) -> Iterator[Found]:
        """Nested classes of a class that does not parse as a whole may still parse."""
        name_node, body = field(definition, "name"), field(definition, "body")
        if name_node is None or body is None:
            return
        for child in body.named_children:
            inner = definition_of(child)
            if inner is not None and inner.type == "class_definition":
                yield from self.scan(child, f"{prefix}{text_of(name_node, self._data)}.", None)

    # Classes ---------------------------------------------------------------------------------

    def _class(self, outer: Node, definition: Node, name: str) -> Iterator[Found]:
        bases = [self._names.resolve(base) or base for base in base_names(definition, self._data)]
        is_module = any(self._names.is_module_class(base) for base in bases)
        own = classes.methods(definition, self._data)
        if not is_module and bases and "forward" in own and not _ends_in(bases, "Function"):
            # A base from elsewhere in the workspace: `forward` on tensors tells what it is.
            is_module = not any(base.startswith("@") for base in bases)
        if is_module:
            found = self._module(outer, definition, name, own, bases)
            if found is not None:
                yield found
        body = field(definition, "body")
        for child in body.named_children if body is not None else ():
            inner = definition_of(child)
            if inner is None:
                continue
            if inner.type == "class_definition":
                yield from self.scan(child, name + ".", None)
            elif is_module or _ends_in(bases, "Function"):
                yield from self._nested(inner, name)
            else:
                yield from self.scan(child, name + ".", definition)

    def _module(
        self,
        outer: Node,
        definition: Node,
        name: str,
        own: Mapping[str, classes.Method],
        bases: Sequence[str],
    ) -> Found | None:
        forward = own.get("forward")
        init = own.get("__init__")
        comments = definition_comments(outer, definition, self._data)
        operations: tuple[str, ...] = ()
        inherits: str | None = None
        signature: tuple[Parameter, ...] = ()
        if forward is not None:
            attributes = self._attributes_of(definition)
            operations = self._module_operations(own, attributes)
            if not operations:
                return None
            comments += definition_comments(forward.outer, forward.node, self._data)
            signature = parameters(forward.node, self._data)[1:]
        else:
            inherits = next((b for b in bases if self._names.is_module_class(b)), None)
            if inherits in (None, "torch.nn.Module"):
                return None
        init_signature: tuple[Parameter, ...] = ()
        if init is not None:
            comments += definition_comments(init.outer, init.node, self._data)
            init_signature = parameters(init.node, self._data)[1:]
        annotations = parse_annotations(comments)
        missing = [] if forward is not None else ["forward"]
        missing = missing_inputs(signature, annotations)
        needed = [p.name for p in init_signature if required(p)]
        missing += [n for n in needed if n not in annotations.init and n not in missing]
        problem = _problem(
            annotations,
            forward.node if forward is not None else None,
            signature,
            init_signature if init is not None else None,
            self._data,
        )
        return self._found(
            "module",
            name,
            outer,
            definition,
            operations,
            tuple(missing),
            annotations,
            problem,
            inherits=inherits,
            needs_init=bool(needed),
            forward_arguments=sum(1 for p in signature if required(p)),
        )

    def _module_operations(
        self, own: Mapping[str, classes.Method], attributes: Mapping[str, Value]
    ) -> tuple[str, ...]:
        """Operations of `forward` and of the methods that it calls."""
        names: dict[str, None] = {}
        waiting = ["forward"]
        seen = {"forward"}
        while waiting:
            method = own[waiting.pop()]
            if method.node.has_error:
                continue
            flow = self._read(method.node, attributes, forward=True)
            names.update((op.name, None) for op in flow.operations if op.role is Role.COMPUTE)
            text = self._data[method.node.start_byte : method.node.end_byte]
            for called in _OWN_CALL.findall(text):
                called_name = called.decode()
                if called_name in own and called_name not in seen:
                    seen.add(called_name)
                    waiting.append(called_name)
        return tuple(names)

    # Functions -------------------------------------------------------------------------------

    def _function(
        self, outer: Node, definition: Node, name: str, in_class: Node | None
    ) -> Iterator[Found]:
        simple = name.rpartition(".")[2]
        if not self._tests and not _NO_KERNEL.fullmatch(simple) and not self._is_foreign(outer):
            found = self._tensor_function(outer, definition, name, in_class)
            if found is not None:
                yield found
                return
        yield from self._nested(definition, name)

    def _tensor_function(
        self, outer: Node, definition: Node, name: str, in_class: Node | None
    ) -> Found | None:
        attributes: Mapping[str, Value] = {}
        is_method = in_class is not None and not _is_static(outer, self._data)
        if in_class is not None and is_method:
            attributes = self._attributes_of(in_class)
        comments = definition_comments(outer, definition, self._data)
        annotations = parse_annotations(comments)
        told = {n for n, spec in annotations.inputs.items() if isinstance(spec, TensorSpec)}
        flow = self._read(definition, attributes, method=is_method, tensors=told)
        computed = [op for op in flow.operations if op.role is Role.COMPUTE]
        signature = parameters(definition, self._data)[1 if is_method else 0 :]
        if flow.calls_parameter or any(
            flow.parameters[p.name] == OTHER and required(p) for p in signature
        ):
            # A function, a model, a configuration: no comment can give it.
            return None
        if flow.trains or not flow.tensor_parameters or all(op.outside for op in computed):
            return None
        return self._found(
            "function",
            name,
            outer,
            definition,
            tuple(dict.fromkeys(op.name for op in computed)),
            tuple(missing_inputs(signature, annotations)),
            annotations,
            _problem(annotations, definition, signature, None, self._data),
            forward_arguments=sum(1 for p in signature if required(p)),
        )

    def _nested(self, definition: Node, name: str) -> Iterator[Found]:
        """Module classes that a function makes."""
        text = self._data[definition.start_byte : definition.end_byte]
        body = field(definition, "body")
        if b"class " not in text or body is None:
            return
        stack = list(reversed(body.named_children))
        while stack:
            node = stack.pop()
            inner = definition_of(node)
            if inner is not None and inner.type == "class_definition":
                yield from self.scan(node, f"{name}.<locals>.", None)
            elif inner is None and node.type.endswith(("_statement", "_clause", "block")):
                stack.extend(reversed(node.named_children))

    def _is_foreign(self, outer: Node) -> bool:
        """Decorators that make another language or a fixture of the function."""
        for child in outer.named_children if outer.type == "decorated_definition" else ():
            if child.type == "decorator" and child.named_child_count:
                target = child.named_children[0]
                if target.type == "call":
                    target = field(target, "function") or target
                dotted = dotted_text(target, self._data)
                resolved = (self._names.resolve(dotted) or dotted) if dotted else ""
                if resolved.startswith(("triton.", "numba.", "pytest.", "tilelang.", "jax.")):
                    return True
        return False

    def _attributes_of(self, definition: Node) -> Mapping[str, Value]:
        if definition.id not in self._attributes:
            found = classes.attributes(definition, self._data, self._names)
            self._attributes[definition.id] = found
        return self._attributes[definition.id]

    # Both ------------------------------------------------------------------------------------

    def _read(
        self,
        definition: Node,
        attributes: Mapping[str, Value],
        *,
        forward: bool = False,
        method: bool = False,
        tensors: set[str] | None = None,
    ) -> Flow:
        return read_function(
            definition,
            self._data,
            self._names,
            attributes,
            forward=forward,
            method=method or forward,
            tensors=tensors or set(),
        )

    def _found(
        self,
        kind: Kind,
        name: str,
        outer: Node,
        definition: Node,
        operations: tuple[str, ...],
        missing: tuple[str, ...],
        annotations: Annotations,
        problem: Problem | None,
        *,
        inherits: str | None = None,
        needs_init: bool = False,
        forward_arguments: int = 0,
    ) -> Found:
        return Found(
            kind,
            name,
            outer.start_byte,
            outer.end_byte,
            self._data.rfind(b"\n", 0, definition.start_byte) + 1,
            comments_start(self._data, outer.start_byte),
            operations,
            missing,
            not missing and problem is None,
            problem,
            inherits,
            needs_init,
            forward_arguments,
        )


def read_function(
    definition: Node,
    data: bytes,
    names: ModuleNames,
    attributes: Mapping[str, Value],
    *,
    forward: bool = False,
    method: bool = False,
    tensors: set[str] | frozenset[str] = frozenset(),
    record: bool = False,
) -> Flow:
    """Reads a function with what its signature says. In a `forward` a parameter without an
    annotation is a tensor; elsewhere it is one when the body says so."""
    body = field(definition, "body")
    values: dict[str, Value] = {}
    nodes = list(parameter_nodes(definition, data))
    for index, (name, annotation, node) in enumerate(nodes):
        if method and not index:
            values[name] = SELF
            continue
        value = annotated(annotation, data, names, {}) if annotation is not None else None
        if value is None:
            value = _by_default(field(node, "value"), forward)
        values[name] = TENSOR if name in tensors else value
    flow = Flow(data, names, values, attributes, record=record)
    if body is None:
        return flow
    flow.read(body)
    # A later call may have shown that a parameter is a tensor: earlier operators on it count too.
    told = [n for n in flow.tensor_parameters if values[n].kind not in ("tensor", "tensors")]
    if told:
        values |= dict.fromkeys(told, TENSOR)
        flow = Flow(data, names, values, attributes, record=record)
        flow.read(body)
    return flow


def _by_default(default: Node | None, forward: bool) -> Value:
    if default is not None and default.type in ("integer", "float", "true", "false", "string"):
        return SCALAR
    return TENSOR if forward else UNKNOWN


def required(parameter: Parameter) -> bool:
    return parameter.default is None and parameter.kind in ("positional", "keyword")


def missing_inputs(signature: Sequence[Parameter], annotations: Annotations) -> list[str]:
    """Names of the arguments and symbolic dimensions that no annotation gives."""
    missing: list[str] = []
    for parameter in signature:
        spec = annotations.spec(parameter.name) or jaxtyping_spec(parameter.annotation)
        if spec is None:
            if required(parameter):
                missing.append(parameter.name)
            continue
        if isinstance(spec, TensorSpec) and spec.dtype.startswith("int") and spec.high is None:
            missing.append(parameter.name)
        missing += annotations.unbound(spec)
    stars = [p.name for p in signature if p.kind == "*" and annotations.spec(p.name) is None]
    if stars and len(signature) == sum(1 for p in signature if p.kind in ("*", "**")):
        # Whatever comes in, comes in there.
        missing += stars
    return list(dict.fromkeys(missing))


def _problem(
    annotations: Annotations,
    function: Node | None,
    signature: Sequence[Parameter],
    init_signature: Sequence[Parameter] | None,
    data: bytes,
) -> Problem | None:
    """What is wrong with the annotations of a function, and of the constructor that goes with it
    (None: there is none to check)."""
    if annotations.problems:
        return annotations.problems[0]
    known = {parameter.name for parameter in signature}
    unknown = [name for name in annotations.inputs if name not in known]
    body = field(function, "body") if function is not None else None
    if unknown and body is not None:
        # A comment inside may speak of a local name: for a call or a selection.
        local = assigned_names(body, data)
        for name in unknown:
            if name not in local:
                return Problem(-1, f"The annotation names {name}, which is no input here.")
    known = {parameter.name for parameter in init_signature or ()}
    for name in annotations.init if init_signature is not None else ():
        if name not in known:
            return Problem(-1, f"The annotation names {name}, which the constructor does not take.")
    return None


def _is_static(outer: Node, data: bytes) -> bool:
    return any(
        child.type == "decorator" and b"staticmethod" in data[child.start_byte : child.end_byte]
        for child in outer.named_children
    )


def _ends_in(bases: Sequence[str], name: str) -> bool:
    return any(base.rpartition(".")[2] == name for base in bases)
