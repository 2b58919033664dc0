"""Reads a graph (docs/graph.md) node by node into a Program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from musacoder_inference.engines.synth.dtypes import SUPPORTED, promote
from musacoder_inference.engines.synth.from_graph.node import Node, is_number, number
from musacoder_inference.engines.synth.from_graph.registry import RULES
from musacoder_inference.engines.synth.ir import (
    Argument,
    Buffer,
    Const,
    Expr,
    Load,
    NotCovered,
    Op,
    Program,
    Reduce,
    ReduceKind,
    Scan,
    Store,
    Target,
    Tensor,
    contiguous_strides,
    load,
    try_reshape,
    whole,
)

GRAPH_FORMAT = 1
# Checks of what the graph already says: dtypes, shapes, devices.
_CHECKS = frozenset({"aten._assert_tensor_metadata.default", "aten._assert_scalar.default"})


def cast(expr: Expr, dtype: str) -> Expr:
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const):
        return Const(expr.value, dtype)
    return Op("cast", (expr,), dtype)


class Builder:
    """The state of one reading: values by node name, and the Program so far."""

    def __init__(self) -> None:
        self.program = Program()
        self.values: dict[str, tuple[Tensor | None, ...]] = {}
        self._names: set[str] = set()

    def buffer(self, hint: str, dtype: str, shape: Sequence[int], role: str = "scratch") -> Buffer:
        """A new Buffer with a C++ name near `hint`."""
        base = "".join(c if c.isalnum() else "_" for c in hint).strip("_") or "value"
        if not base[0].isalpha() or base in _RESERVED or _LOCAL_NAME.fullmatch(base):
            base = "t_" + base
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return Buffer(name, dtype, tuple(shape), role)  # type: ignore[arg-type]

    def tensor(self, reference: Any) -> Tensor:
        """The value of a `{"ref": ...}` argument, or a number as a 0-dimensional Tensor."""
        if is_number(reference):
            scalar = number(reference)
            dtype = (
                "bool"
                if isinstance(scalar, bool)
                else "int64"
                if isinstance(scalar, int)
                else "float32"
            )
            return Tensor((), Const(scalar, dtype))
        if not isinstance(reference, Mapping) or "ref" not in reference:
            raise NotCovered(
                f"an argument {reference!r} where a tensor is needed is not covered by synth"
            )
        value = self.values[reference["ref"]][reference.get("index", 0)]
        if value is None:
            raise NotCovered(
                f"result {reference.get('index', 0)} of {reference['ref']} is not covered by synth"
            )
        return value

    def materialize(self, value: Tensor, hint: str) -> Tensor:
        """Stores `value` to contiguous scratch memory, unless it is such memory already."""
        expr = value.expr
        if (
            isinstance(expr, Load)
            and expr.offset == 0
            and expr.buffer.shape == value.shape
            and expr.strides == expr.buffer.strides
        ):
            return value
        buffer = self.buffer(hint, value.dtype, value.shape)
        self.program.stages.append(Store(whole(buffer), value.shape, value.expr))
        return load(buffer)

    def as_load(self, value: Tensor, hint: str) -> tuple[Tensor, Load]:
        """`value` as plain strided memory."""
        if not isinstance(value.expr, Load):
            value = self.materialize(value, hint)
        assert isinstance(value.expr, Load)
        return value, value.expr

    def reshape(self, value: Tensor, shape: Sequence[int], hint: str) -> Tensor:
        expr = try_reshape(value.expr, value.shape, shape)
        if expr is None:
            value = self.materialize(value, hint)
            expr = try_reshape(value.expr, value.shape, shape)
            assert expr is not None
        return Tensor(tuple(shape), expr)

    def reduce(
        self, value: Tensor, dims: Sequence[int], kind: ReduceKind, hint: str, keepdim: bool = False
    ) -> Tensor:
        """A reduction stage; max, min, sum and prod keep the value's dtype."""
        dtype = (
            "int64" if kind.startswith("arg") else "bool" if kind in ("any", "all") else value.dtype
        )
        kept = tuple(1 if d in dims else n for d, n in enumerate(value.shape))
        buffer = self.buffer(hint, dtype, kept)
        strides = tuple(0 if d in dims else s for d, s in enumerate(buffer.strides))
        stage = Reduce(
            Target(buffer, 0, strides), value.shape, tuple(sorted(dims)), kind, value.expr
        )
        self.program.stages.append(stage)
        result = Tensor(kept, Load(buffer, 0, strides))
        if keepdim:
            return result
        for dim in sorted(dims, reverse=True):
            result = result.squeeze(dim)
        return result

    def scan(self, value: Tensor, dim: int, kind: str, hint: str) -> Tensor:
        buffer = self.buffer(hint, value.dtype, value.shape)
        self.program.stages.append(Scan(whole(buffer), value.shape, dim, kind, value.expr))  # type: ignore[arg-type]
        return load(buffer)


# What the printers call their own loops and values.
_LOCAL_NAME = re.compile(
    r"[ijkmnpr]s?\d*|v\d+|rows?|columns?|batch|count|lanes?|first|block|stop|depth|to|sums?|part|begin|end"
    r"|value|top|nan|bad|(acc|row|part|best|kept|total|running|column|found|x|nan)_.*|check|work"
)
_RESERVED = {
    "float", "double", "int", "bool", "char", "long", "short", "void", "auto", "const", "for", "if",
    "else", "while", "do", "return", "new", "delete", "class", "struct", "static", "inline", "min",
    "max", "template", "typename", "this", "switch", "case", "default", "break", "continue", "and",
    "or", "not", "xor", "union", "enum", "operator", "private", "public", "signed", "unsigned",
    "exp", "log", "sqrt", "tanh", "erf", "pow", "sin", "cos", "tan", "floor", "ceil", "round",
    "abs", "forward", "forward_cpu", "torch", "at", "std", "int64_t", "gemm", "bad", "begin", "end",
    "y0", "y1", "yn", "j0", "j1", "jn", "gamma", "signal", "index", "div", "time", "remainder",
}  # fmt: skip


def elementwise(name: str, dtype: str, shape: Sequence[int], *operands: Tensor) -> Tensor:
    """`name` applied to operands broadcast to `shape`; each is cast to `dtype` first."""
    args = tuple(cast(o.expand(shape).expr, dtype) for o in operands)
    return Tensor(tuple(shape), Op(name, args, dtype))


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(s) for s in shapes)
    result = []
    for d in range(rank):
        sizes = {s[d - rank + len(s)] for s in shapes if d - rank + len(s) >= 0} - {1}
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def operand_dtype(a: Tensor, a_is_number: bool, b: Tensor, b_is_number: bool) -> str:
    """The type in which a comparison is made: numbers and 0-dimensional tensors of the same
    category give way to the other side, as torch's promotion rules say."""
    order = {"bool": 0, "float16": 2, "bfloat16": 2, "float32": 2, "float64": 2}
    weak_a = a_is_number or (not a.shape and bool(b.shape))
    weak_b = b_is_number or (not b.shape and bool(a.shape))
    if weak_b and not weak_a and order.get(b.dtype, 1) <= order.get(a.dtype, 1):
        return a.dtype
    if weak_a and not weak_b and order.get(a.dtype, 1) <= order.get(b.dtype, 1):
        return b.dtype
    return promote(a.dtype, b.dtype)


def normalize_dims(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions as sorted non-negative numbers; None and [] mean all."""
    if dims is None or dims == []:
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else dims
    return tuple(sorted({d % max(rank, 1) for d in listed})) if rank else ()


def read_graph(graph: Mapping[str, Any]) -> tuple[Program, list[tuple[str, str | None]]]:
    """The Program of a graph, and for each result its kind ("output", "buffer" or "input") and
    target name. Raises NotCovered."""
    if graph.get("format") != GRAPH_FORMAT:
        raise NotCovered(f"graph format {graph.get('format')} is not known to synth")
    builder = Builder()
    _read_inputs(builder, graph["inputs"])
    nodes = [Node(data) for data in graph["nodes"] if data["op"] not in _CHECKS]
    missing = sorted({n.operator.split(".")[1] for n in nodes if n.operator not in RULES})
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise NotCovered(f"{', '.join(missing)} {verb} not covered by synth")
    for node in nodes:
        for output in node.data["outputs"]:
            if output is not None and output["dtype"] not in SUPPORTED:
                raise NotCovered(f"dtype {output['dtype']} is not covered by synth")
        values = RULES[node.operator].rule(builder, node)
        builder.values[node.name] = (values,) if isinstance(values, Tensor) else values
    return builder.program, _read_outputs(builder, graph["outputs"])


def _read_inputs(builder: Builder, inputs: Sequence[Mapping[str, Any]]) -> None:
    for entry in inputs:
        name = entry["name"]
        if "shape" not in entry:
            value = entry.get("value")
            builder.values[name] = (builder.tensor(value) if is_number(value) else None,)
            continue
        shape, dtype = tuple(entry["shape"]), entry["dtype"]
        if dtype not in SUPPORTED:
            raise NotCovered(f"dtype {dtype} is not covered by synth")
        if "value" in entry:
            builder.values[name] = (_constant(builder, entry["value"], shape, dtype, name),)
            continue
        kind, target = entry["kind"], entry["target"]
        source = name if kind == "input" else attribute(target)
        hint = name if kind == "input" else target.replace(".", "_")
        buffer = builder.buffer(hint, dtype, shape, "input")
        builder.program.arguments.append(Argument(buffer, source))
        builder.values[name] = (load(buffer),)


def _constant(
    builder: Builder, values: Sequence[Any], shape: tuple[int, ...], dtype: str, name: str
) -> Tensor:
    """A small tensor written down in the graph: one number, or stores to scratch."""
    numbers = [number(v) for v in values]
    if len({repr(v) for v in numbers}) == 1:
        return Tensor(shape, Const(numbers[0], dtype)).expand(shape)
    buffer = builder.buffer(name, dtype, shape)
    strides = contiguous_strides(shape)
    for position, value in enumerate(numbers):
        target = Target(buffer, position, (0,) * len(strides))
        builder.program.stages.append(Store(target, (1,) * len(strides), Const(value, dtype)))
    return load(buffer)


def attribute(target: str) -> str:
    """Python text that reads `target` of a state_dict from `self`."""
    text = "self"
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return text


def _read_outputs(
    builder: Builder, outputs: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str | None]]:
    described = []
    for entry in outputs:
        if entry["value"] is None or is_number(entry["value"]):
            raise NotCovered("a result that is not a tensor is not covered by synth")
        value = builder.tensor(entry["value"])
        buffer = builder.buffer("out", value.dtype, value.shape, "output")
        builder.program.stages.append(Store(whole(buffer), value.shape, value.expr))
        builder.program.results.append(buffer)
        described.append((entry["kind"], entry["target"]))
    return described
