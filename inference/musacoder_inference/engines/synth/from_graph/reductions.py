"""Reductions and running sums and products."""

from __future__ import annotations

from math import prod

from musacoder_inference.engines.synth.dtypes import is_float
from musacoder_inference.engines.synth.from_graph.builder import (
    Builder,
    cast,
    elementwise,
    normalize_dims,
)
from musacoder_inference.engines.synth.from_graph.node import Node, number
from musacoder_inference.engines.synth.from_graph.pointwise import truth
from musacoder_inference.engines.synth.from_graph.registry import covers
from musacoder_inference.engines.synth.ir import Const, NotCovered, ReduceKind, Tensor

# Sums of half types are kept in float32 and rounded once.
_WIDE = {"float16": "float32", "bfloat16": "float32"}


def _keepdim(node: Node, position: int) -> bool:
    return bool(node.arg(position, "keepdim", False))


def _dims_of(node: Node, value: Tensor) -> tuple[int, ...]:
    """The dimensions that a reduction names, all of them where its overload has none."""
    _, name, overload = node.operator.split(".")
    names_dims = (
        overload != "default" or name in ("amax", "amin") or node.operator.startswith("prims")
    )
    return normalize_dims(node.arg(1, "dim") if names_dims else None, len(value.shape))


def total(
    builder: Builder, value: Tensor, dims: tuple[int, ...], hint: str, keepdim: bool = False
) -> Tensor:
    """Sum with half types widened to float32; the caller casts back."""
    wide = Tensor(value.shape, cast(value.expr, _WIDE.get(value.dtype, value.dtype)))
    return builder.reduce(wide, dims, "sum", hint, keepdim)


def divide(value: Tensor, by: float) -> Tensor:
    return elementwise("div", value.dtype, value.shape, value, Tensor((), Const(by, value.dtype)))


@covers("reduction", "aten.sum.default", "aten.sum.dim_IntList", "prims.sum.default")
def _sum(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    value = Tensor(value.shape, cast(value.expr, node.dtype()))
    result = total(builder, value, _dims_of(node, value), node.name, _keepdim(node, 2))
    return Tensor(result.shape, cast(result.expr, node.dtype()))


@covers("reduction", "aten.mean.default", "aten.mean.dim")
def _mean(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    value = Tensor(value.shape, cast(value.expr, node.dtype()))
    dims = _dims_of(node, value)
    result = mean(builder, value, dims, node.name, _keepdim(node, 2))
    return Tensor(result.shape, cast(result.expr, node.dtype()))


def mean(
    builder: Builder, value: Tensor, dims: tuple[int, ...], hint: str, keepdim: bool = False
) -> Tensor:
    count = prod(value.shape[d] for d in dims)
    return divide(total(builder, value, dims, hint, keepdim), float(count))


@covers("reduction", "aten.prod.default", "aten.prod.dim_int", "prims.prod.default")
def _prod(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    wide = _WIDE.get(node.dtype(), node.dtype())
    value = Tensor(value.shape, cast(value.expr, wide))
    result = builder.reduce(value, _dims_of(node, value), "prod", node.name, _keepdim(node, 2))
    return Tensor(result.shape, cast(result.expr, node.dtype()))


def _not_empty(value: Tensor, dims: tuple[int, ...]) -> None:
    if prod(value.shape[d] for d in dims) == 0:
        raise NotCovered("a maximum or minimum over no elements is not covered by synth")


def extreme(
    builder: Builder,
    value: Tensor,
    dims: tuple[int, ...],
    kind: ReduceKind,
    hint: str,
    keepdim: bool,
) -> Tensor:
    _not_empty(value, dims)
    if value.dtype == "bool":
        kind = {"max": "any", "min": "all"}[kind]  # type: ignore[assignment]
    return builder.reduce(value, dims, kind, hint, keepdim)


@covers(
    "reduction",
    "aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default",
)  # fmt: skip
def _extreme(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    kind: ReduceKind = "max" if "max" in node.operator else "min"
    dims = _dims_of(node, value)
    return extreme(builder, value, dims, kind, node.name, _keepdim(node, 2))


@covers("reduction", "aten.max.dim", "aten.min.dim")
def _extreme_with_index(builder: Builder, node: Node) -> tuple[Tensor, Tensor]:
    value = builder.tensor(node.arg(0, "self"))
    kind: ReduceKind = "max" if ".max." in node.operator else "min"
    position: ReduceKind = "argmax" if kind == "max" else "argmin"
    dims, keepdim = normalize_dims(node.arg(1, "dim"), len(value.shape)), _keepdim(node, 2)
    _not_empty(value, dims)
    if value.dtype == "bool":
        raise NotCovered("max with indices of bool is not covered by synth")
    values = builder.reduce(value, dims, kind, node.name, keepdim)
    return values, builder.reduce(value, dims, position, node.name + "_index", keepdim)


@covers("reduction", "aten.argmax.default", "aten.argmin.default")
def _arg_extreme(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    kind: ReduceKind = "argmax" if "argmax" in node.operator else "argmin"
    dims = normalize_dims(node.arg(1, "dim"), len(value.shape))
    _not_empty(value, dims)
    if value.dtype == "bool":
        raise NotCovered("argmax of bool is not covered by synth")
    return builder.reduce(value, dims, kind, node.name, _keepdim(node, 2))


@covers(
    "reduction",
    "aten.any.default",
    "aten.any.dim",
    "aten.any.dims",
    "aten.all.default",
    "aten.all.dim",
    "aten.all.dims",
)
def _any_all(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    kind: ReduceKind = "any" if ".any." in node.operator else "all"
    flags = Tensor(value.shape, truth(value.expr))
    result = builder.reduce(flags, _dims_of(node, value), kind, node.name, _keepdim(node, 2))
    return Tensor(result.shape, cast(result.expr, node.dtype()))


def variance(
    builder: Builder, value: Tensor, dims: tuple[int, ...], correction: float, hint: str
) -> tuple[Tensor, Tensor]:
    """Variance and mean, dimensions kept; two passes, so that a large mean does no harm."""
    wide = Tensor(value.shape, cast(value.expr, _WIDE.get(value.dtype, value.dtype)))
    average = mean(builder, wide, dims, hint + "_mean", keepdim=True)
    centred = elementwise("sub", wide.dtype, wide.shape, wide, average)
    squares = elementwise("mul", wide.dtype, wide.shape, centred, centred)
    count = prod(value.shape[d] for d in dims)
    total_squares = builder.reduce(squares, dims, "sum", hint + "_squares", keepdim=True)
    freedom = max(count - correction, 0)
    if freedom == 0:
        zero = Tensor((), Const(0.0, wide.dtype))
        return elementwise("div", wide.dtype, total_squares.shape, total_squares, zero), average
    return divide(total_squares, float(freedom)), average


@covers(
    "reduction",
    "aten.var.correction", "aten.var_mean.correction", "aten.std.correction", "prims.var.default",
    "aten.var.dim", "aten.std.dim", "aten.var.default", "aten.std.default",
)  # fmt: skip
def _variance(builder: Builder, node: Node) -> Tensor | tuple[Tensor, Tensor]:
    value = builder.tensor(node.arg(0, "self"))
    overload = node.operator.split(".")[2]
    whole = overload == "default" and node.operator.startswith("aten")
    dims = normalize_dims(None if whole else node.arg(1, "dim"), len(value.shape))
    correction = node.arg(1 if whole else 2, "correction")
    if isinstance(correction, bool):  # the older overloads name it `unbiased`
        correction = int(correction)
    keepdim = bool(node.arg(3, "keepdim", False))
    spread, average = variance(
        builder, value, dims, float(number(1 if correction is None else correction)), node.name
    )
    if ".std." in node.operator:
        spread = elementwise("sqrt", spread.dtype, spread.shape, spread)
    results = []
    for result in (spread, average):
        if not keepdim:
            for dim in sorted(dims, reverse=True):
                result = result.squeeze(dim)
        results.append(Tensor(result.shape, cast(result.expr, node.dtype())))
    return (results[0], results[1]) if "var_mean" in node.operator else results[0]


@covers("scan", "aten.cumsum.default", "aten.cumprod.default")
def _running(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    dtype = node.dtype()
    wide = _WIDE.get(dtype, dtype)
    value = Tensor(value.shape, cast(value.expr, wide))
    if not value.shape:
        return Tensor((), cast(value.expr, dtype))
    dim = normalize_dims(node.arg(1, "dim"), len(value.shape))[0]
    kind = "sum" if "cumsum" in node.operator else "prod"
    result = builder.scan(value, dim, kind, node.name)
    return Tensor(result.shape, cast(result.expr, dtype))


@covers("reduction", "aten.linalg_vector_norm.default")
def _vector_norm(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    order = float(number(node.arg(1, "ord", 2)))
    dims = normalize_dims(node.arg(2, "dim"), len(value.shape))
    keepdim = bool(node.arg(3, "keepdim", False))
    if not is_float(value.dtype):
        raise NotCovered("a norm of integers is not covered by synth")
    wide = Tensor(value.shape, cast(value.expr, _WIDE.get(value.dtype, value.dtype)))
    size = elementwise("abs", wide.dtype, wide.shape, wide)
    if order == float("inf") or order == float("-inf"):
        result = extreme(builder, size, dims, "max" if order > 0 else "min", node.name, keepdim)
    elif order == 1:
        result = builder.reduce(size, dims, "sum", node.name, keepdim)
    elif order == 2:
        squares = elementwise("mul", wide.dtype, wide.shape, wide, wide)
        result = builder.reduce(squares, dims, "sum", node.name, keepdim)
        result = elementwise("sqrt", result.dtype, result.shape, result)
    else:
        raise NotCovered(f"a norm of order {order:g} is not covered by synth")
    return Tensor(result.shape, cast(result.expr, node.dtype()))
