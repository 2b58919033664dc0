"""Pooling: reductions over a window, read through affine indices."""

from __future__ import annotations

from math import prod
from typing import Any

from musacoder_inference.engines.synth.dtypes import is_float
from musacoder_inference.engines.synth.from_graph.builder import Builder, cast, elementwise
from musacoder_inference.engines.synth.from_graph.node import Node
from musacoder_inference.engines.synth.from_graph.reductions import divide, total
from musacoder_inference.engines.synth.from_graph.registry import covers
from musacoder_inference.engines.synth.ir import (
    Const,
    Expr,
    Index,
    Masked,
    NotCovered,
    Op,
    Tensor,
    reindex,
)


def _per_dim(value: Any, spatial: int, default: list[int]) -> list[int]:
    if value is None or value == []:
        return default
    listed = [value] if isinstance(value, int) else list(value)
    return listed * spatial if len(listed) == 1 else listed


def window(
    value: Tensor, output: tuple[int, ...], taps: list[int], stride: list[int], padding: list[int],
    dilation: list[int], outside: Expr,
) -> Tensor:  # fmt: skip
    """`value (.., *spatial)` as `(.., *output, *taps)`; `outside` where the window leaves it."""
    spatial = len(taps)
    lead = len(value.shape) - spatial
    shape = (*value.shape[:lead], *output, *taps)

    def read(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        outer = [strides[lead + d] * stride[d] for d in range(spatial)]
        inner = [strides[lead + d] * dilation[d] for d in range(spatial)]
        offset -= sum(strides[lead + d] * padding[d] for d in range(spatial))
        return offset, (*strides[:lead], *outer, *inner)

    bounds = []
    for d in range(spatial):
        index = [0] * len(shape)
        index[lead + d], index[lead + spatial + d] = stride[d], dilation[d]
        last = (output[d] - 1) * stride[d] + (taps[d] - 1) * dilation[d] - padding[d]
        if padding[d] > 0 or last >= value.shape[lead + d]:
            bounds.append((Index(-padding[d], tuple(index)), value.shape[lead + d]))
    expr = reindex(value.expr, read)
    return Tensor(shape, Masked(expr, outside, bounds) if bounds else expr)


@covers(
    "pooling",
    "aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default",
    note="max pooling: values without indices",
)  # fmt: skip
def _max_pool(builder: Builder, node: Node) -> tuple[Tensor | None, ...]:
    value = builder.tensor(node.arg(0, "self"))
    spatial = 2 if "2d" in node.operator else 3
    taps = _per_dim(node.arg(1, "kernel_size"), spatial, [])
    stride = _per_dim(node.arg(2, "stride"), spatial, taps)
    padding = _per_dim(node.arg(3, "padding"), spatial, [0] * spatial)
    dilation = _per_dim(node.arg(4, "dilation"), spatial, [1] * spatial)
    if not is_float(value.dtype):
        raise NotCovered("max pooling of integers is not covered by synth")
    output = node.shape()[-spatial:]
    lowest = Const(float("-inf"), value.dtype)
    windows = window(value, output, taps, stride, padding, dilation, lowest)
    dims = tuple(range(len(windows.shape) - spatial, len(windows.shape)))
    return builder.reduce(windows, dims, "max", node.name), None


@covers("pooling", "aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def _average_pool(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    spatial = int(node.operator.split("pool")[1][0])
    taps = _per_dim(node.arg(1, "kernel_size"), spatial, [])
    stride = _per_dim(node.arg(2, "stride"), spatial, taps)
    padding = _per_dim(node.arg(3, "padding"), spatial, [0] * spatial)
    include_pad = bool(node.arg(5, "count_include_pad", True))
    divisor = node.arg(6, "divisor_override")
    if not is_float(value.dtype):
        raise NotCovered("average pooling of integers is not covered by synth")
    output = node.shape()[-spatial:]
    ones = [1] * spatial
    windows = window(value, output, taps, stride, padding, ones, Const(0, value.dtype))
    dims = tuple(range(len(windows.shape) - spatial, len(windows.shape)))
    result = total(builder, windows, dims, node.name)
    lead = len(value.shape) - spatial
    size = value.shape[lead:]
    if divisor:
        result = divide(result, float(divisor))
    elif all(
        _inside(output[d], stride[d], taps[d], padding[d], size[d], include_pad)
        for d in range(spatial)
    ):
        result = divide(result, float(prod(taps)))
    else:
        for d in range(spatial):
            count = _window_count(
                len(result.shape), lead + d, stride[d], taps[d], padding[d], size[d], include_pad
            )
            counts = Tensor(result.shape, cast(count, result.dtype))
            result = elementwise("div", result.dtype, result.shape, result, counts)
    return Tensor(result.shape, cast(result.expr, node.dtype()))


def _inside(
    output: int, stride: int, taps: int, padding: int, size: int, include_pad: bool
) -> bool:
    """Whether every window of a dimension counts all its taps."""
    margin = padding if include_pad else 0
    return (padding == 0 or include_pad) and (output - 1) * stride + taps - padding <= size + margin


def _window_count(
    rank: int, dim: int, stride: int, taps: int, padding: int, size: int, include_pad: bool
) -> Expr:
    """How many taps of the window count: those inside, or inside the padded range."""
    low, high = (-padding, size + padding) if include_pad else (0, size)
    start = Index(-padding, tuple(stride if d == dim else 0 for d in range(rank)))
    end = Index(taps - padding, start.strides)
    clipped_end = Op("minimum", (end, Const(high, "int64")), "int64")
    clipped_start = Op("maximum", (start, Const(low, "int64")), "int64")
    return Op("sub", (clipped_end, clipped_start), "int64")


@covers(
    "pooling",
    "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default",
    note="adaptive: output size divides input size",
)  # fmt: skip
def _adaptive_average(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    spatial = 2 if "2d" in node.operator else 3
    output, size = node.shape()[-spatial:], value.shape[-spatial:]
    if any(o == 0 or n % o for n, o in zip(size, output, strict=True)):
        raise NotCovered(
            "adaptive pooling whose output does not divide the input is not covered by synth"
        )
    taps = [n // o for n, o in zip(size, output, strict=True)]
    ones, zeros = [1] * spatial, [0] * spatial
    windows = window(value, output, taps, taps, zeros, ones, Const(0, value.dtype))
    dims = tuple(range(len(windows.shape) - spatial, len(windows.shape)))
    result = divide(total(builder, windows, dims, node.name), float(prod(taps)))
    return Tensor(result.shape, cast(result.expr, node.dtype()))
