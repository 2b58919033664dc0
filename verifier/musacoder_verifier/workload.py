"""Workload: the concrete inputs that a Reference and a Candidate are run on."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

Origin = Literal["get_inputs", "annotation", "captured", "asked"]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One leaf of `get_inputs()` as the probe saw it; for a non-tensor, `dtype` names its type."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str = "cpu"
    low: float | None = None
    high: float | None = None
    value: str | None = None  # repr of a non-tensor


@dataclass(frozen=True, slots=True)
class Workload:
    origin: Origin
    inputs: tuple[InputSpec, ...]
    training: bool = False

    def describe(self) -> str:
        """A short human form such as `x f32[1024, 4096], n 3`."""
        return ", ".join(_describe(spec) for spec in self.inputs)


_SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool",
    "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def _describe(spec: InputSpec) -> str:
    if spec.value is not None:
        return f"{spec.name} {spec.value}"
    return f"{spec.name} {_SHORT.get(spec.dtype, spec.dtype)}{list(spec.shape)}"


_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
_SHORT_TO_LONG = {short: long for long, short in _SHORT.items()}


_INPUT = re.compile(
    r"""\s*(?P<name>\w+):?\s+
        (?:(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\]
          |(?P<value>'[^']*'|"[^"]*"|\([^)]*\)|\[[^]]*\]|\{[^}]*\}|[^,\s]+))
        \s*(?:,|$)""",
    re.VERBOSE,
)


def parse(text: str, *, training: bool = False) -> Workload:
    """The inverse of `Workload.describe`: `x f32[1024, 4096], n 3`. Raises ValueError."""
    specs: list[InputSpec] = []
    place = 0
    while place < len(text) or not specs:
        match = _INPUT.match(text, place)
        if match is None:
            rest = text[place:].strip()
            raise ValueError(f"{rest!r} is no input; write such as: x f32[1024, 4096], n 3")
        specs.append(_spec(match))
        place = match.end()
    return Workload("asked", tuple(specs), training)


def _spec(match: re.Match[str]) -> InputSpec:
    value = match["value"]
    if value is not None:
        try:
            return InputSpec(match["name"], type(ast.literal_eval(value)).__name__, value=value)
        except (ValueError, SyntaxError):
            raise ValueError(f"{value!r} is neither dtype[shape] nor a constant") from None
    dtype = _SHORT_TO_LONG.get(match["dtype"], match["dtype"])
    if dtype not in _SHORT:
        known = ", ".join(_SHORT_TO_LONG)
        raise ValueError(f"{match['dtype']} is no dtype; choose one of: {known}")
    sizes = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    return InputSpec(match["name"], dtype, sizes)


def get_inputs_source(workload: Workload) -> str:
    """A function `get_inputs`, as Python source, that makes these inputs on the CPU with fresh
    values each time: floats between `low` and `high` where both are known, else normal; integers
    from `low` (0) to `high` (9), both included; bools by chance. Strides are kept."""
    lines = [f"    {spec.name} = {_expression(spec)}" for spec in workload.inputs]
    names = ", ".join(spec.name for spec in workload.inputs)
    return "\n".join(["def get_inputs():", "    import torch", *lines, f"    return [{names}]", ""])


def _expression(spec: InputSpec) -> str:
    if spec.value is not None:
        return spec.value
    shape = list(spec.shape)
    dtype = f"torch.{spec.dtype}"
    if spec.dtype == "bool":
        made = f"torch.rand({shape}) < 0.5"
    elif spec.dtype not in _FLOATS and not spec.dtype.startswith("complex"):
        low, high = int(spec.low or 0), int(9 if spec.high is None else spec.high)
        made = f"torch.randint({low}, {high + 1}, {shape}, dtype={dtype})"
    elif spec.low is None or spec.high is None or spec.dtype not in _FLOATS:
        made = f"torch.randn({shape}, dtype={dtype})"
    else:
        made = f"(torch.rand({shape}) * {spec.high - spec.low!r} + {spec.low!r}).to({dtype})"
    if not spec.stride or spec.stride == _contiguous(spec.shape):
        return made
    return f"torch.empty_strided({shape}, {list(spec.stride)}, dtype={dtype}).copy_({made})"


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    step = 1
    strides: list[int] = []
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
