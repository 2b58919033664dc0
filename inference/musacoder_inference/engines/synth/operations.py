"""The scalar operations of the intermediate form as C++ text, shared by all printers."""

from __future__ import annotations

import re
from math import isinf, isnan

from musacoder_inference.engines.synth.dtypes import COMPUTE_TYPE, is_float
from musacoder_inference.engines.synth.ir import Const, NotCovered

# `{0}` and `{1}` are atoms or parenthesised; every entry is safe as an operand of any other.
_FORMATS = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})",
    "neg": "(-{0})", "abs": "std::abs({0})", "reciprocal": "(1 / {0})",
    "eq": "({0} == {1})", "ne": "({0} != {1})", "lt": "({0} < {1})", "le": "({0} <= {1})",
    "gt": "({0} > {1})", "ge": "({0} >= {1})",
    "logical_and": "({0} && {1})", "logical_or": "({0} || {1})", "logical_xor": "({0} != {1})",
    "logical_not": "(!{0})", "bitwise_and": "({0} & {1})", "bitwise_or": "({0} | {1})",
    "bitwise_xor": "({0} ^ {1})", "bitwise_not": "(~{0})",
    "where": "({0} ? {1} : {2})",
    # Comparisons are written so that NaN comes through, as torch has it.
    "relu": "({0} < 0 ? 0 : {0})",
    "maximum": "larger({0}, {1})", "minimum": "smaller({0}, {1})",
    "isnan": "({0} != {0})", "isinf": "std::isinf({0})",
    "sign": "sign({0})", "floor": "std::floor({0})", "ceil": "std::ceil({0})",
    "round": "std::nearbyint({0})", "trunc": "std::trunc({0})", "sqrt": "std::sqrt({0})",
    "rsqrt": "(1 / std::sqrt({0}))", "fmod": "std::fmod({0}, {1})",
    "remainder": "floor_remainder({0}, {1})", "div_floor": "floor_divide({0}, {1})",
    "div_trunc": "std::trunc({0} / {1})", "atan2": "std::atan2({0}, {1})",
    "pow": "std::pow({0}, {1})",
    "sigmoid": "sigmoid({0})", "silu": "({0} * sigmoid({0}))",
    "gelu": "gelu({0})", "gelu_tanh": "gelu_tanh({0})",
    "exp": "exponential({0})", "expm1": "exponential_minus_1({0})", "log": "logarithm({0})",
    "log1p": "logarithm_1_plus({0})", "tanh": "hyperbolic_tangent({0})",
    "erf": "error_function({0})",
    "exp2": "std::exp2({0})", "log2": "std::log2({0})", "log10": "std::log10({0})",
    "sin": "std::sin({0})", "cos": "std::cos({0})", "tan": "std::tan({0})",
    "asin": "std::asin({0})", "acos": "std::acos({0})", "atan": "std::atan({0})",
    "sinh": "std::sinh({0})", "cosh": "std::cosh({0})", "asinh": "std::asinh({0})",
    "acosh": "std::acosh({0})", "atanh": "std::atanh({0})", "erfc": "std::erfc({0})",
}  # fmt: skip
# Worth keeping for a second pass rather than computing again.
COSTLY = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "erfc",
        "sigmoid", "silu",
        "gelu", "gelu_tanh", "pow", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
        "asinh",
        "acosh", "atanh", "atan2", "fmod", "remainder", "div_floor",
    }
)  # fmt: skip
_DEDUCED = frozenset({"maximum", "minimum", "remainder", "div_floor"})
# Repeats its argument in the text, so the argument must be a name.
REPEATS = frozenset({"relu", "isnan", "silu"})


def format_operation(name: str, dtype: str, args: list[str]) -> str:
    """C++ text of an operation whose arguments have type `dtype` or, for casts, become it."""
    if name == "cast":
        return f"static_cast<{COMPUTE_TYPE[dtype]}>({strip(args[0])})"
    if name == "div_trunc" and not is_float(dtype):
        return f"({args[0]} / {args[1]})"
    if name == "fmod" and not is_float(dtype):
        return f"({args[0]} % {args[1]})"
    if name not in _FORMATS:
        raise NotCovered(f"{name} is not covered by synth")
    text = _FORMATS[name]
    call = re.match(r"[a-z_:0-9]+\(", text)
    text = text.format(*([strip(a) for a in args] if call else args))
    if name in _DEDUCED and not is_float(dtype):
        # The argument types differ where one is a literal, so the type is spelled out.
        text = text.replace("(", f"<{COMPUTE_TYPE[dtype]}>(", 1)
    return text


def strip(text: str) -> str:
    """Without one pair of outer parentheses, where they enclose the whole text."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def literal(const: Const) -> str:
    """C++ text of a constant in its compute type."""
    if const.dtype == "bool":
        return "true" if const.value else "false"
    if not is_float(const.dtype):
        value = int(const.value)
        if value == -(1 << 63):
            return "std::numeric_limits<int64_t>::min()"
        return str(value) if value >= 0 else f"({value})"
    number = float(const.value)
    c_type = COMPUTE_TYPE[const.dtype]
    if isinf(number):
        sign = "-" if number < 0 else ""
        text = f"{sign}std::numeric_limits<{c_type}>::infinity()"
        return f"({text})" if sign else text
    if isnan(number):
        return f"std::numeric_limits<{c_type}>::quiet_NaN()"
    text = repr(number) if c_type == "double" else f"{number:.9g}"
    if c_type == "float" and len(repr(number)) < len(text):
        text = repr(number)
    if "." not in text and "e" not in text:
        text += ".0"
    text += "f" if c_type == "float" else ""
    return f"({text})" if number < 0 else text


def index_text(offset: int, strides: tuple[int, ...], names: list[str]) -> str:
    """`offset + i * 512 + j` for the loops that matter."""
    parts = []
    for stride, name in zip(strides, names, strict=True):
        if stride == 0 or name == "0":
            continue
        term = name if stride == 1 else f"-{name}" if stride == -1 else f"{name} * {stride}"
        parts.append(term)
    if offset or not parts:
        parts.append(str(offset))
    text = parts[0]
    for part in parts[1:]:
        text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
    return text
