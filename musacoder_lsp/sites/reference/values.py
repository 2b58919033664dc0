"""Python text that makes the inputs which an annotation describes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from musacoder_lsp.sites.workload import ListSpec, Spec, TensorSpec, ValueSpec

_TOKEN = re.compile(r"\d+|[^\W\d]\w*|//|[-+*()]")


def size(expression: str, values: Mapping[str, str]) -> int:
    """A dimension such as `4 * H`; ValueError says what is wrong with it."""
    tokens = _TOKEN.findall(expression)

    def term() -> int:
        result = factor()
        while tokens and tokens[0] in ("*", "//"):
            if tokens.pop(0) == "*":
                result *= factor()
            else:
                divisor = factor()
                if not divisor:
                    raise ValueError(f"the size `{expression}` divides by zero")
                result //= divisor
        return result

    def whole() -> int:
        result = term()
        while tokens and tokens[0] in ("+", "-"):
            result = result + term() if tokens.pop(0) == "+" else result - term()
        return result

    def factor() -> int:
        if not tokens:
            raise ValueError(f"the size `{expression}` ends early")
        token = tokens.pop(0)
        if token == "(":
            result = whole()
            if not tokens or tokens.pop(0) != ")":
                raise ValueError(f"the size `{expression}` lacks a `)`")
            return result
        if token == "-":
            return -factor()
        value = values.get(token, token).replace("_", "")
        if not value.isdecimal():
            raise ValueError(f"`{token}` in the size `{expression}` is no whole number")
        return int(value)

    result = whole()
    if tokens:
        raise ValueError(f"the size `{expression}` does not end at `{tokens[0]}`")
    if result < 0:
        raise ValueError(f"the size `{expression}` is negative")
    return result


def made(spec: Spec, values: Mapping[str, str]) -> str:
    """Expression that makes a value of the spec; `values` binds the symbolic dimensions."""
    if isinstance(spec, ValueSpec):
        return spec.text
    if isinstance(spec, ListSpec):
        items = ", ".join(made(item, values) for item in spec.items)
        if not spec.is_tuple:
            return f"[{items}]"
        return f"({items},)" if len(spec.items) == 1 else f"({items})"
    return _tensor(spec, values)


def _tensor(spec: TensorSpec, values: Mapping[str, str]) -> str:
    sizes = [str(size(dim, values)) for dim in spec.shape]
    shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    low = _bound(spec.low, values)
    high = _bound(spec.high, values)
    if spec.dtype == "bool":
        return f"torch.rand({shape}) < 0.5"
    if spec.dtype.startswith(("int", "uint")):
        top = high or "256"
        return f"torch.randint({low or '0'}, {top}, {shape}, dtype=torch.{spec.dtype})"
    dtype = "" if spec.dtype == "float32" else f", dtype=torch.{spec.dtype}"
    if low is None and high is None:
        return f"torch.randn({shape}{dtype})"
    # With one bound given the values lie in the unit interval beside it.
    start = float(low) if low is not None else float(high or 0) - 1
    width = float(high) - start if high is not None else 1.0
    return f"torch.rand({shape}{dtype}) * {width!r} + {start!r}"


def _bound(text: str | None, values: Mapping[str, str]) -> str | None:
    if text is None:
        return None
    value = values.get(text, text)
    try:
        float(value)
    except ValueError:
        raise ValueError(f"the bound `{text}` is no number") from None
    return value
