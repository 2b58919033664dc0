"""Element types: torch's promotion rules, and how each type is stored and computed in C++."""

from __future__ import annotations

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SUPPORTED = (*FLOATS, *INTEGERS, "bool")

STORAGE_TYPE = {
    "float16": "at::Half", "bfloat16": "at::BFloat16", "float32": "float", "float64": "double",
    "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
    "int64": "int64_t", "bool": "bool",
}  # fmt: skip
# Half types are widened on load, computed in float and rounded once on store.
COMPUTE_TYPE = {**STORAGE_TYPE, "float16": "float", "bfloat16": "float"}
TORCH_CONSTANT = {
    "float16": "torch::kHalf", "bfloat16": "torch::kBFloat16", "float32": "torch::kFloat",
    "float64": "torch::kDouble", "uint8": "torch::kUInt8", "int8": "torch::kInt8",
    "int16": "torch::kShort", "int32": "torch::kInt", "int64": "torch::kLong",
    "bool": "torch::kBool",
}  # fmt: skip
_RANK = {name: i for i, name in enumerate(("bool", "uint8", "int8", "int16", "int32", "int64"))}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def promote(a: str, b: str) -> str:
    """torch.promote_types for the supported types."""
    if a == b:
        return a
    if is_float(a) and is_float(b):
        if {a, b} == {"float16", "bfloat16"}:
            return "float32"
        return max(a, b, key=FLOATS.index)
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    return max(a, b, key=lambda name: _RANK[name])
