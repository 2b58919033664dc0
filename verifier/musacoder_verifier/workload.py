"""Workload: the concrete inputs that a Reference and a Candidate are run on."""

from __future__ import annotations

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
