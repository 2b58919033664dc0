"""Pointwise operators: arithmetic, comparisons, activations, casts, where, clamp."""

from __future__ import annotations

from typing import Any

from musacoder_inference.engines.synth.dtypes import is_float
from musacoder_inference.engines.synth.from_graph.builder import (
    Builder,
    cast,
    elementwise,
    operand_dtype,
)
from musacoder_inference.engines.synth.from_graph.node import Node, is_number, number
from musacoder_inference.engines.synth.from_graph.registry import covers
from musacoder_inference.engines.synth.ir import Const, Expr, NotCovered, Op, Tensor

_UNARY_FLOAT = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos",
    "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid",
    "reciprocal", "silu",
)  # fmt: skip
_UNARY_SAME = ("neg", "abs", "floor", "ceil", "round", "trunc", "sign", "relu")
_ARITHMETIC = ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "fmod", "remainder")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")
_BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")


def _operator(node: Node) -> str:
    return node.operator.split(".")[1]


@covers("pointwise", *(f"aten.{name}.default" for name in (*_UNARY_FLOAT, *_UNARY_SAME)))
def _unary(builder: Builder, node: Node) -> Tensor:
    name, value, dtype = _operator(node), builder.tensor(node.arg(0, "self")), node.dtype()
    if not is_float(dtype) and name in ("floor", "ceil", "round", "trunc"):
        return value
    return elementwise(name, dtype, node.shape(), value)


@covers("pointwise", "aten.square.default")
def _square(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    return elementwise("mul", node.dtype(), node.shape(), value, value)


@covers(
    "pointwise",
    *(
        f"aten.{name}.{overload}"
        for name in _ARITHMETIC
        for overload in ("Tensor", "Scalar", "default")
    ),
    "prims.div.default",
)
def _arithmetic(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "other"))
    alpha = node.arg(2, "alpha", 1)
    if alpha != 1 and _operator(node) in ("add", "sub"):
        factor = Tensor((), Const(number(alpha), node.dtype()))
        right = elementwise("mul", node.dtype(), right.shape, right, factor)
    name = _operator(node)
    if node.dtype() == "bool":
        name = {
            "add": "logical_or",
            "mul": "logical_and",
            "maximum": "logical_or",
            "minimum": "logical_and",
        }.get(name, "")
        if not name:
            raise NotCovered(f"{_operator(node)} of bool is not covered by synth")
    return elementwise(name, node.dtype(), node.shape(), left, right)


@covers("pointwise", "aten.rsub.Scalar", "aten.rsub.Tensor")
def _reverse_subtract(builder: Builder, node: Node) -> Tensor:
    if node.arg(2, "alpha", 1) != 1:
        raise NotCovered("rsub with alpha is not covered by synth")
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "other"))
    return elementwise("sub", node.dtype(), node.shape(), right, left)


@covers("pointwise", "aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide.default")
def _divide_rounded(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "other"))
    mode = (
        "floor" if node.operator.startswith("aten.floor_divide") else node.arg(2, "rounding_mode")
    )
    if mode is None:
        return elementwise("div", node.dtype(), node.shape(), left, right)
    return elementwise(f"div_{mode}", node.dtype(), node.shape(), left, right)


@covers(
    "pointwise", *(f"aten.{n}.{overload}" for n in _COMPARE for overload in ("Tensor", "Scalar"))
)
def _compare(builder: Builder, node: Node) -> Tensor:
    left_raw, right_raw = node.arg(0, "self"), node.arg(1, "other")
    left, right = builder.tensor(left_raw), builder.tensor(right_raw)
    dtype = operand_dtype(left, is_number(left_raw), right, is_number(right_raw))
    args = (
        cast(left.expand(node.shape()).expr, dtype),
        cast(right.expand(node.shape()).expr, dtype),
    )
    return Tensor(node.shape(), Op(_operator(node), args, "bool"))


@covers("pointwise", *(f"aten.{name}.default" for name in _LOGICAL))
def _logical(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "other"))
    args = tuple(truth(v.expand(node.shape()).expr) for v in (left, right))
    return Tensor(node.shape(), Op(_operator(node), args, "bool"))


@covers("pointwise", "aten.logical_not.default", "aten.bitwise_not.default")
def _not(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    if node.operator.startswith("aten.bitwise") and value.dtype != "bool":
        return elementwise("bitwise_not", node.dtype(), node.shape(), value)
    return Tensor(node.shape(), Op("logical_not", (truth(value.expr),), "bool"))


@covers("pointwise", *(f"aten.{n}.{o}" for n in _BITWISE for o in ("Tensor", "Scalar")))
def _bitwise(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "other"))
    name = _operator(node)
    if node.dtype() == "bool":
        name = name.replace("bitwise", "logical")
    return elementwise(name, node.dtype(), node.shape(), left, right)


def truth(expr: Expr) -> Expr:
    """`expr != 0` as bool."""
    if expr.dtype == "bool":
        return expr
    return Op("ne", (expr, Const(0, expr.dtype)), "bool")


@covers("pointwise", "aten.isnan.default", "aten.isinf.default")
def _classify(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    if not is_float(value.dtype):
        return Tensor(node.shape(), Const(False, "bool"))
    return Tensor(node.shape(), Op(_operator(node), (value.expr,), "bool"))


@covers(
    "pointwise",
    "aten.where.self",
    "aten.where.ScalarOther",
    "aten.where.ScalarSelf",
    "aten.where.Scalar",
)
def _where(builder: Builder, node: Node) -> Tensor:
    condition = builder.tensor(node.arg(0, "condition")).expand(node.shape())
    chosen = builder.tensor(node.arg(1, "self")).expand(node.shape())
    other = builder.tensor(node.arg(2, "other")).expand(node.shape())
    args = (truth(condition.expr), cast(chosen.expr, node.dtype()), cast(other.expr, node.dtype()))
    return Tensor(node.shape(), Op("where", args, node.dtype()))


@covers("pointwise", "aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self")).expand(node.shape())
    mask = builder.tensor(node.arg(1, "mask")).expand(node.shape())
    fill = builder.tensor(node.arg(2, "value")).expand(node.shape())
    args = (mask.expr, cast(fill.expr, node.dtype()), cast(value.expr, node.dtype()))
    return Tensor(node.shape(), Op("where", args, node.dtype()))


@covers("pointwise", "aten.clamp.default", "aten.clamp.Tensor", "aten.hardtanh.default")
def _clamp(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self")).expand(node.shape())
    low, high = node.arg(1, "min"), node.arg(2, "max")
    if node.operator.startswith("aten.hardtanh"):
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    if low is not None:
        value = elementwise("maximum", node.dtype(), node.shape(), value, builder.tensor(low))
    if high is not None:
        value = elementwise("minimum", node.dtype(), node.shape(), value, builder.tensor(high))
    return value


@covers(
    "pointwise",
    "aten.clamp_min.default",
    "aten.clamp_max.default",
    "aten.clamp_min.Tensor",
    "aten.clamp_max.Tensor",
)
def _clamp_one_side(builder: Builder, node: Node) -> Tensor:
    name = "maximum" if "clamp_min" in node.operator else "minimum"
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "min"))
    return elementwise(name, node.dtype(), node.shape(), left, right)


@covers("pointwise", "aten.pow.Tensor_Scalar")
def _power_scalar(builder: Builder, node: Node) -> Tensor:
    value, dtype, shape = builder.tensor(node.arg(0, "self")), node.dtype(), node.shape()
    exponent = number(node.arg(1, "exponent"))
    if exponent == 1:
        return Tensor(shape, cast(value.expr, dtype))
    if exponent == 2:
        return elementwise("mul", dtype, shape, value, value)
    if exponent == 3:
        return elementwise(
            "mul", dtype, shape, elementwise("mul", dtype, shape, value, value), value
        )
    if exponent == 4:
        square = elementwise("mul", dtype, shape, value, value)
        return elementwise("mul", dtype, shape, square, square)
    names: dict[Any, str] = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if is_float(dtype) and exponent in names:
        return elementwise(names[exponent], dtype, shape, value)
    return _power(value, Tensor((), Const(exponent, dtype)), dtype, shape)


@covers("pointwise", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _power_tensor(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "exponent"))
    return _power(left, right, node.dtype(), node.shape())


def _power(left: Tensor, right: Tensor, dtype: str, shape: tuple[int, ...]) -> Tensor:
    if not is_float(dtype):
        raise NotCovered("pow of integers is not covered by synth")
    return elementwise("pow", dtype, shape, left, right)


@covers("pointwise", "aten.gelu.default")
def _gelu(builder: Builder, node: Node) -> Tensor:
    tanh_form = node.arg(1, "approximate", "none") == "tanh"
    name = "gelu_tanh" if tanh_form else "gelu"
    return elementwise(name, node.dtype(), node.shape(), builder.tensor(node.arg(0, "self")))


@covers(
    "pointwise",
    "aten._to_copy.default", "aten.to.dtype", "prims.convert_element_type.default",
)  # fmt: skip
def _cast(builder: Builder, node: Node) -> Tensor:
    value = builder.tensor(node.arg(0, "self"))
    if node.dtype() == "bool":
        return Tensor(value.shape, truth(value.expr))
    return Tensor(value.shape, cast(value.expr, node.dtype()))
