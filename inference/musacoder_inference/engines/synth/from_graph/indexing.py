"""Reads through an index tensor: embedding, gather, index_select, advanced indexing."""

from __future__ import annotations

from musacoder_inference.engines.synth.from_graph.builder import Builder, cast
from musacoder_inference.engines.synth.from_graph.node import Node
from musacoder_inference.engines.synth.from_graph.registry import covers
from musacoder_inference.engines.synth.ir import (
    Const,
    Expr,
    Gather,
    NotCovered,
    Op,
    Tensor,
)


def take(builder: Builder, value: Tensor, dim: int, index: Tensor, hint: str) -> Tensor:
    """`value` with dimension `dim` replaced by the dimensions of `index`, read through it."""
    value, plain = builder.as_load(value, hint + "_source")
    if len(index.shape) + len(value.shape) - 1 < 0:
        raise NotCovered("indexing of a 0-dimensional tensor is not covered by synth")
    before, after = value.shape[:dim], value.shape[dim + 1 :]
    shape = (*before, *index.shape, *after)
    inner = index
    for _ in after:
        inner = inner.unsqueeze(len(inner.shape))
    positions = cast(inner.expand(shape).expr, "int64")
    strides = (*plain.strides[:dim], *(0 for _ in index.shape), *plain.strides[dim + 1 :])
    expr = Gather(
        plain.buffer, plain.offset, strides, positions, plain.strides[dim], value.shape[dim]
    )
    return Tensor(shape, expr)


@covers("indexing", "aten.embedding.default")
def _embedding(builder: Builder, node: Node) -> Tensor:
    weight, indices = builder.tensor(node.arg(0, "weight")), builder.tensor(node.arg(1, "indices"))
    return take(builder, weight, 0, indices, node.name)


@covers("indexing", "aten.index_select.default")
def _index_select(builder: Builder, node: Node) -> Tensor:
    value, index = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(2, "index"))
    dim = node.arg(1, "dim") % max(len(value.shape), 1)
    result = take(builder, value, dim, index, node.name)
    return Tensor(node.shape(), result.expr)


@covers("indexing", "aten.gather.default")
def _gather(builder: Builder, node: Node) -> Tensor:
    value, index = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(2, "index"))
    if not value.shape or not index.shape:
        raise NotCovered("gather of a 0-dimensional tensor is not covered by synth")
    dim = node.arg(1, "dim") % len(value.shape)
    value, plain = builder.as_load(value, node.name + "_source")
    strides = tuple(0 if d == dim else s for d, s in enumerate(plain.strides))
    positions = cast(index.expr, "int64")
    expr = Gather(
        plain.buffer, plain.offset, strides, positions, plain.strides[dim], value.shape[dim]
    )
    return Tensor(index.shape, expr)


def _wrap_negative(index: Expr, size: int) -> Expr:
    """Negative indices count from the end, as in Python."""
    index = cast(index, "int64")
    negative = Op("lt", (index, Const(0, "int64")), "bool")
    wrapped = Op("add", (index, Const(size, "int64")), "int64")
    return Op("where", (negative, wrapped, index), "int64")


@covers(
    "indexing",
    "aten.index.Tensor",
    "aten._unsafe_index.Tensor",
    note="index: one integer index tensor",
)
def _index(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    given = [(d, i) for d, i in enumerate(node.arg(1, "indices")) if i is not None]
    if len(given) != 1:
        raise NotCovered("indexing with several tensors is not covered by synth")
    dim, index = given[0][0], builder.tensor(given[0][1])
    if index.dtype in ("bool", "uint8"):
        raise NotCovered("indexing with a mask is not covered by synth")
    wrapped = Tensor(index.shape, _wrap_negative(index.expr, value.shape[dim]))
    return take(builder, value, dim, wrapped, node.name)
