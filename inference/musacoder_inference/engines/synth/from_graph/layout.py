"""Layout operators: views, concatenation, padding, factories of constants."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from musacoder_inference.engines.synth.dtypes import is_float
from musacoder_inference.engines.synth.from_graph.builder import (
    Builder,
    cast,
    normalize_dims,
)
from musacoder_inference.engines.synth.from_graph.node import Node, is_number, number
from musacoder_inference.engines.synth.from_graph.registry import covers
from musacoder_inference.engines.synth.ir import (
    Const,
    Index,
    Load,
    Masked,
    NotCovered,
    Op,
    Store,
    Target,
    Tensor,
    load,
    regroup_strides,
    reindex,
)


@covers(
    "layout",
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
    "aten.flatten.using_ints",
    "aten.squeeze.dims", "aten.squeeze.dim", "aten.squeeze.default", "aten.unsqueeze.default",
)  # fmt: skip
def _view(builder: Builder, node: Node) -> Tensor:
    return builder.reshape(builder.tensor(node.arg(0, "self")), node.shape(), node.name)


@covers(
    "layout",
    "aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default",
    "aten.lift_fresh_copy.default", "prims.view_of.default",
)  # fmt: skip
def _same(builder: Builder, node: Node) -> Tensor:
    return builder.tensor(node.arg(0, "self"))


@covers("layout", "aten.permute.default")
def _permute(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    return value.permute([d % len(value.shape) for d in node.arg(1, "dims")])


@covers("layout", "aten.transpose.int")
def _transpose(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    rank = len(value.shape)
    if rank == 0:
        return value
    a, b = node.arg(1, "dim0") % rank, node.arg(2, "dim1") % rank
    dims = list(range(rank))
    dims[a], dims[b] = dims[b], dims[a]
    return value.permute(dims)


@covers("layout", "aten.t.default")
def _t(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    return value.permute(range(len(value.shape))[::-1])


@covers("layout", "aten.expand.default", "aten.broadcast_to.default")
def _expand(builder: Builder, node: Node) -> Tensor:
    return builder.tensor(node.arg(0, "self")).expand(node.shape())


@covers("layout", "prims.broadcast_in_dim.default")
def _broadcast_in_dim(builder: Builder, node: Node) -> Tensor:
    value, shape = builder.tensor(node.arg(0, "a")), node.shape()
    placed = list(node.arg(2, "broadcast_dimensions"))
    for dim in range(len(shape)):
        if dim not in placed:
            value = value.unsqueeze(dim)
    return value.expand(shape)


@covers("layout", "aten.slice.Tensor")
def _slice(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    dim = node.arg(1, "dim", 0) % len(value.shape)
    start, step = node.arg(2, "start"), node.arg(4, "step", 1)
    start = 0 if start is None else start
    size = value.shape[dim]
    start = min(max(start + size if start < 0 else start, 0), size)
    return value.slice(dim, start, node.shape()[dim], step)


@covers("layout", "aten.select.int")
def _select(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    dim = node.arg(1, "dim") % len(value.shape)
    index = node.arg(2, "index") % value.shape[dim]
    return value.slice(dim, index, 1).squeeze(dim)


@covers(
    "layout",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.chunk.default",
    "aten.unbind.int",
)
def _split(builder: Builder, node: Node) -> tuple[Tensor, ...]:
    value = builder.tensor(node.arg(0, "self"))
    unbind = node.operator == "aten.unbind.int"
    dim = node.arg(1 if unbind else 2, "dim", 0) % len(value.shape)
    parts, start = [], 0
    for output in range(len(node.data["outputs"])):
        size = 1 if unbind else node.shape(output)[dim]
        part = value.slice(dim, start, size)
        parts.append(part.squeeze(dim) if unbind else part)
        start += size
    return tuple(parts)


@covers("layout", "aten.flip.default")
def _flip(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    for dim in normalize_dims(list(node.arg(1, "dims")) or [], len(value.shape)):
        value = value.flip(dim)
    return value


@covers("layout", "aten.as_strided.default")
def _as_strided(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    shape, stride = tuple(node.arg(1, "size")), tuple(node.arg(2, "stride"))
    offset = node.arg(3, "storage_offset") or 0
    if prod(shape) > prod(value.shape):
        raise NotCovered("an overlapping as_strided is not covered by synth")
    value = builder.materialize(value, node.name)
    assert isinstance(value.expr, Load)
    return Tensor(shape, Load(value.expr.buffer, offset, stride))


def concatenate(builder: Builder, parts: Sequence[Tensor], dim: int, hint: str) -> Tensor:
    """One buffer, and one store per part into its region."""
    size = sum(p.shape[dim] for p in parts)
    shape = (*parts[0].shape[:dim], size, *parts[0].shape[dim + 1 :])
    buffer = builder.buffer(hint, parts[0].dtype, shape)
    start = 0
    for part in parts:
        target = Target(buffer, start * buffer.strides[dim], buffer.strides)
        builder.program.stages.append(Store(target, part.shape, part.expr))
        start += part.shape[dim]
    return load(buffer)


@covers("layout", "aten.cat.default", "aten.stack.default")
def _cat(builder: Builder, node: Node) -> Tensor:
    parts = [builder.tensor(t) for t in node.arg(0, "tensors")]
    dim = node.arg(1, "dim", 0) % len(node.shape())
    if node.operator.startswith("aten.stack"):
        parts = [p.unsqueeze(dim) for p in parts]
    parts = [
        Tensor(p.shape, cast(p.expr, node.dtype()))
        for p in parts
        if len(p.shape) == len(node.shape())
    ]
    return concatenate(builder, parts, dim, node.name)


@covers("layout", "aten.repeat.default", "aten.tile.default")
def _repeat(builder: Builder, node: Node) -> Tensor:
    value, repeats = builder.tensor(node.arg(0, "self")), list(node.arg(1, "repeats"))
    repeats = [1] * (len(value.shape) - len(repeats)) + repeats
    for _ in range(len(repeats) - len(value.shape)):
        value = value.unsqueeze(0)
    wide: list[int] = []
    for dim, count in enumerate(repeats):
        value = value.unsqueeze(2 * dim)
        wide += [count, value.shape[2 * dim + 1]]
    return builder.reshape(value.expand(wide), node.shape(), node.name)


@covers("layout", "aten.constant_pad_nd.default")
def _pad(builder: Builder, node: Node) -> Tensor:
    value, pads = builder.tensor(node.arg(0, "self")), list(node.arg(1, "pad"))
    other = Const(number(node.arg(2, "value", 0)), value.dtype)
    for pair in range(len(pads) // 2):
        dim = len(value.shape) - 1 - pair
        low, high = pads[2 * pair], pads[2 * pair + 1]
        if low < 0 or high < 0:
            start = max(-low, 0)
            value = value.slice(dim, start, value.shape[dim] - start - max(-high, 0))
        if low > 0 or high > 0:
            value = value.pad_index(dim, max(low, 0), max(high, 0), other)
    return value


@covers("layout", "aten.slice_scatter.default", "aten.select_scatter.default")
def _scatter_region(builder: Builder, node: Node) -> Tensor:
    value, source = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "src"))
    dim = node.arg(2, "dim", 0) % len(value.shape)
    size = value.shape[dim]
    start, step = node.arg(3, "start"), 1
    if node.operator.startswith("aten.select"):
        source = source.unsqueeze(dim)
    else:
        step = node.arg(5, "step", 1)
    start = start or 0
    start = min(max(start + size if start < 0 else start, 0), size)
    if step != 1:
        raise NotCovered("slice_scatter with a step is not covered by synth")
    index = Index(-start, tuple(int(d == dim) for d in range(len(value.shape))))
    shifted = source.slice(dim, -start, size)
    expr = Masked(cast(shifted.expr, value.dtype), value.expr, [(index, source.shape[dim])])
    return Tensor(value.shape, expr)


@covers(
    "factory",
    "aten.arange.start_step",
    "aten.arange.default",
    "aten.arange.start",
    "prims.iota.default",
)
def _arange(builder: Builder, node: Node) -> Tensor:
    name = node.operator
    if name == "prims.iota.default":
        start, step = node.arg(1, "start", 0), node.arg(2, "step", 1)
    elif name == "aten.arange.default":
        start, step = 0, 1
    else:
        start, step = node.arg(0, "start"), node.arg(2, "step", 1)
    if isinstance(start, int) and isinstance(step, int):
        return Tensor(node.shape(), cast(Index(start, (step,)), node.dtype()))
    index = cast(Index(0, (1,)), "float64")
    scaled = Op("mul", (index, Const(number(step), "float64")), "float64")
    return Tensor(
        node.shape(),
        cast(Op("add", (scaled, Const(number(start), "float64")), "float64"), node.dtype()),
    )


@covers(
    "factory",
    "aten.full.default", "aten.full_like.default", "aten.scalar_tensor.default",
    "aten.zeros.default",
    "aten.ones.default", "aten.zeros_like.default", "aten.ones_like.default",
    "aten.new_zeros.default",
    "aten.new_full.default", "aten.new_ones.default", "aten.fill.Scalar",
)  # fmt: skip
def _full(builder: Builder, node: Node) -> Tensor:
    name = node.operator.split(".")[1]
    value: Any
    if "zeros" in name or "ones" in name:
        value = 0 if "zeros" in name else 1
    elif name == "scalar_tensor":
        value = node.arg(0, "s")
    else:
        value = node.arg(2 if name == "new_full" else 1, "fill_value")
    if not is_number(value):
        raise NotCovered(f"{name} with a tensor as value is not covered by synth")
    value = number(value)
    if not is_float(node.dtype()) and isinstance(value, float) and not value.is_integer():
        value = int(value)
    return Tensor(node.shape(), Const(value, node.dtype()))


def split_dim(value: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Splits one dimension into several; always a view."""
    shape = (*value.shape[:dim], *sizes, *value.shape[dim + 1 :])

    def index_map(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        inner = regroup_strides((value.shape[dim],), (strides[dim],), sizes)
        assert inner is not None
        return offset, (*strides[:dim], *inner, *strides[dim + 1 :])

    return Tensor(shape, reindex(value.expr, index_map))
