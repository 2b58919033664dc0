"""Layer, group, instance, batch and RMS normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

from musacoder_inference.engines.synth.from_graph.builder import Builder, cast, elementwise
from musacoder_inference.engines.synth.from_graph.layout import split_dim
from musacoder_inference.engines.synth.from_graph.node import Node
from musacoder_inference.engines.synth.from_graph.reductions import mean, variance
from musacoder_inference.engines.synth.from_graph.registry import covers
from musacoder_inference.engines.synth.ir import Const, NotCovered, Tensor

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def _widen(value: Tensor) -> Tensor:
    return Tensor(value.shape, cast(value.expr, _WIDE.get(value.dtype, value.dtype)))


def _inverse_deviation(spread: Tensor, eps: float) -> Tensor:
    shifted = elementwise(
        "add", spread.dtype, spread.shape, spread, Tensor((), Const(eps, spread.dtype))
    )
    return elementwise("rsqrt", spread.dtype, spread.shape, shifted)


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        value = elementwise("mul", value.dtype, value.shape, value, weight)
    if bias is not None:
        value = elementwise("add", value.dtype, value.shape, value, bias)
    return value


def _optional(builder: Builder, reference: Any) -> Tensor | None:
    return None if reference is None else builder.tensor(reference)


def _standardize(value: Tensor, average: Tensor, inverse: Tensor) -> Tensor:
    centred = elementwise("sub", value.dtype, value.shape, value, average)
    return elementwise("mul", value.dtype, value.shape, centred, inverse)


@covers("normalization", "aten.native_layer_norm.default")
def _layer_norm(builder: Builder, node: Node) -> tuple[Tensor, Tensor, Tensor]:
    value = _widen(builder.tensor(node.arg(0, "input")))
    count = len(node.arg(1, "normalized_shape"))
    dims = tuple(range(len(value.shape) - count, len(value.shape)))
    spread, average = variance(builder, value, dims, 0, node.name)
    inverse = _inverse_deviation(spread, node.arg(4, "eps"))
    weight, bias = (
        _optional(builder, node.arg(2, "weight")),
        _optional(builder, node.arg(3, "bias")),
    )
    result = _affine(_standardize(value, average, inverse), weight, bias)
    return Tensor(result.shape, cast(result.expr, node.dtype())), average, inverse


@covers("normalization", "aten._fused_rms_norm.default", "aten.rms_norm.default")
def _rms_norm(builder: Builder, node: Node) -> tuple[Tensor | None, ...]:
    value = _widen(builder.tensor(node.arg(0, "input")))
    count = len(node.arg(1, "normalized_shape"))
    dims = tuple(range(len(value.shape) - count, len(value.shape)))
    squares = elementwise("mul", value.dtype, value.shape, value, value)
    power = mean(builder, squares, dims, node.name + "_power", keepdim=True)
    eps = node.arg(3, "eps")
    epsilon = (
        {"float64": 2.220446049250313e-16}.get(value.dtype, 1.1920929e-07) if eps is None else eps
    )
    inverse = _inverse_deviation(power, epsilon)
    scaled = elementwise("mul", value.dtype, value.shape, value, inverse)
    result = _affine(scaled, _optional(builder, node.arg(2, "weight")), None)
    return Tensor(result.shape, cast(result.expr, node.dtype())), inverse


@covers("normalization", "aten.native_group_norm.default")
def _group_norm(builder: Builder, node: Node) -> tuple[Tensor | None, ...]:
    value = _widen(builder.tensor(node.arg(0, "input")))
    groups, eps = node.arg(6, "group"), node.arg(7, "eps")
    channels = value.shape[1]
    if prod(value.shape) == 0:
        raise NotCovered("group_norm of an empty tensor is not covered by synth")
    grouped = split_dim(value, 1, (groups, channels // groups))
    dims = tuple(range(2, len(grouped.shape)))
    spread, average = variance(builder, grouped, dims, 0, node.name)
    inverse = _inverse_deviation(spread, eps)
    affine = []
    for reference in (node.arg(1, "weight"), node.arg(2, "bias")):
        parameter = _optional(builder, reference)
        if parameter is not None:
            parameter = split_dim(parameter, 0, (groups, channels // groups))
            for _ in value.shape[2:]:
                parameter = parameter.unsqueeze(len(parameter.shape))
        affine.append(parameter)
    result = _affine(_standardize(grouped, average, inverse), *affine)
    result = Tensor(result.shape, cast(result.expr, node.dtype()))
    return builder.reshape(result, value.shape, node.name), None, None


def _per_channel(value: Tensor | None, rank: int) -> Tensor | None:
    """A vector of channels, shaped to broadcast over (N, C, ...)."""
    if value is None:
        return None
    for _ in range(rank - 2):
        value = value.unsqueeze(len(value.shape))
    return value


@covers(
    "normalization",
    "aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.no_stats",
)  # fmt: skip
def _batch_norm(builder: Builder, node: Node) -> tuple[Tensor | None, ...]:
    value = _widen(builder.tensor(node.arg(0, "input")))
    weight, bias = (
        _optional(builder, node.arg(1, "weight")),
        _optional(builder, node.arg(2, "bias")),
    )
    functional = "functional" in node.operator
    training = node.arg(5 if functional else 3, "training")
    momentum, eps = (
        node.arg(6 if functional else 4, "momentum"),
        node.arg(7 if functional else 5, "eps"),
    )
    if not training:
        running = (
            builder.tensor(node.arg(3, "running_mean")),
            builder.tensor(node.arg(4, "running_var")),
        )
        result = _with_running_statistics(value, weight, bias, running, eps, node.dtype())
        return result, None, None, *running
    rank = len(value.shape)
    dims = (0, *range(2, rank))
    count = prod(value.shape[d] for d in dims)
    spread, average = variance(builder, value, dims, 0, node.name)
    inverse = _inverse_deviation(spread, eps)
    result = _affine(
        _standardize(value, average, inverse), _per_channel(weight, rank), _per_channel(bias, rank)
    )
    result = Tensor(result.shape, cast(result.expr, node.dtype()))
    flat_mean = builder.reshape(average, (value.shape[1],), node.name)
    flat_inverse = builder.reshape(inverse, (value.shape[1],), node.name)
    if not functional:
        return result, flat_mean, flat_inverse
    flat_spread = builder.reshape(spread, (value.shape[1],), node.name)
    unbiased = _scaled(flat_spread, count / max(count - 1, 1))
    updated = []
    for position, fresh in ((3, flat_mean), (4, unbiased)):
        old = builder.tensor(node.arg(position, "running"))
        updated.append(_lerp(old, fresh, momentum))
    return result, flat_mean, flat_inverse, updated[0], updated[1]


def _scaled(value: Tensor, factor: float) -> Tensor:
    return elementwise(
        "mul", value.dtype, value.shape, value, Tensor((), Const(factor, value.dtype))
    )


def _lerp(old: Tensor, fresh: Tensor, momentum: float) -> Tensor:
    kept = _scaled(old, 1.0 - momentum)
    added = _scaled(Tensor(fresh.shape, cast(fresh.expr, old.dtype)), momentum)
    return elementwise("add", old.dtype, old.shape, kept, added)


def _with_running_statistics(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor, Tensor],
    eps: float,
    dtype: str,
) -> Tensor:
    rank = len(value.shape)
    average, spread = (_per_channel(_widen(v), rank) for v in running)
    assert average is not None and spread is not None
    standard = _standardize(value, average, _inverse_deviation(spread, eps))
    result = _affine(standard, _per_channel(weight, rank), _per_channel(bias, rank))
    return Tensor(result.shape, cast(result.expr, dtype))


@covers("normalization", "aten._native_batch_norm_legit_no_training.default")
def _batch_norm_eval(builder: Builder, node: Node) -> tuple[Tensor | None, ...]:
    value = _widen(builder.tensor(node.arg(0, "input")))
    weight, bias = (
        _optional(builder, node.arg(1, "weight")),
        _optional(builder, node.arg(2, "bias")),
    )
    running = (
        builder.tensor(node.arg(3, "running_mean")),
        builder.tensor(node.arg(4, "running_var")),
    )
    eps = node.arg(6, "eps")
    return _with_running_statistics(value, weight, bias, running, eps, node.dtype()), None, None
