"""What one ATen operator costs, by its name without namespace, overload and outer underscores.

What is listed nowhere is taken as one operation for each element of its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MatrixRule:
    """`first` is the position of the first of two (of attention: three) operands."""

    kind: Literal["product", "convolution", "attention"]
    first: int = 0


_PRODUCT = MatrixRule("product")
_ADDED = MatrixRule("product", 1)
_CONVOLUTION = MatrixRule("convolution")
_ATTENTION = MatrixRule("attention")

MATRIX = {
    "mm": _PRODUCT, "bmm": _PRODUCT, "mv": _PRODUCT, "dot": _PRODUCT, "vdot": _PRODUCT,
    "matmul": _PRODUCT, "linear": _PRODUCT, "int_mm": _PRODUCT, "addmm": _ADDED,
    "baddbmm": _ADDED, "addmv": _ADDED, "addbmm": _ADDED, "convolution": _CONVOLUTION,
    "scaled_dot_product_attention": _ATTENTION,
    "scaled_dot_product_flash_attention": _ATTENTION,
    "scaled_dot_product_flash_attention_for_cpu": _ATTENTION,
    "scaled_dot_product_efficient_attention": _ATTENTION,
    "scaled_dot_product_cudnn_attention": _ATTENTION,
    "scaled_dot_product_fused_attention_overrideable": _ATTENTION,
}  # fmt: skip

VIEWS = frozenset({
    "alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "narrow", "permute",
    "real", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind",
    "unfold", "unsafe_view", "unsqueeze", "view", "view_as_complex", "view_as_real", "reshape",
})  # fmt: skip

# Results depend on the shapes of their arguments alone.
SHAPE_ONLY = frozenset({
    "arange", "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like",
    "linspace", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like",
    "scalar_tensor", "sym_size", "zeros", "zeros_like",
})  # fmt: skip

# Read as many elements of their first argument as they give.
LOOKUPS = frozenset({"embedding", "gather", "index", "index_select", "take", "unsafe_index"})

# Move or make data without computing.
MOVES = VIEWS | SHAPE_ONLY | LOOKUPS | frozenset({
    "assert_async", "assert_scalar", "assert_tensor_metadata", "cat", "clone",
    "constant_pad_nd", "contiguous", "copy", "expand_copy", "fill", "flip", "index_put",
    "lift_fresh_copy", "masked_scatter", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "roll", "rot90", "scatter", "select_scatter", "slice_scatter", "stack",
    "to_copy", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "view_copy",
})  # fmt: skip

# Comparisons of a sort of n elements: n log2 n.
SORTS = frozenset({"kthvalue", "median", "mode", "sort", "topk", "unique2"})

# Operations for each element of the largest operand. Variance: subtract, square, add, and the add
# of the mean; a norm: square and add; normalising: variance and mean, subtract, scale, affine.
PER_INPUT = {
    "all": 1, "amax": 1, "amin": 1, "any": 1, "argmax": 1, "argmin": 1, "count_nonzero": 1,
    "cummax": 1, "cummin": 1, "cumprod": 1, "cumsum": 1, "fused_rms_norm": 4,
    "linalg_vector_norm": 2, "log_softmax": 5, "logcumsumexp": 3, "logsumexp": 3, "max": 1,
    "mean": 1, "min": 1, "native_batch_norm_legit": 8, "native_batch_norm_legit_functional": 8,
    "native_batch_norm_legit_no_training": 4, "native_group_norm": 8, "native_layer_norm": 8,
    "nansum": 1, "prod": 1, "rms_norm": 4, "softmax": 5, "std": 4, "sum": 1, "var": 4,
    "var_mean": 4, "scatter_add": 1, "scatter_reduce": 1, "index_add": 1, "avg_pool1d": 1,
    "avg_pool2d": 1, "avg_pool3d": 1, "adaptive_avg_pool2d": 1, "adaptive_avg_pool3d": 1,
    "max_pool2d_with_indices": 1, "max_pool3d_with_indices": 1, "adaptive_max_pool2d": 1,
    "adaptive_max_pool3d": 1, "histc": 1, "bincount": 1,
}  # fmt: skip

# Operations for each element of the result, where that is not one.
PER_OUTPUT = {
    "gelu": 5, "hardtanh": 2, "silu": 3, "native_dropout": 2, "upsample_bilinear2d": 8,
    "upsample_linear1d": 3, "upsample_trilinear3d": 16, "upsample_bicubic2d": 32,
    "grid_sampler_2d": 16, "cdist": 3,
}  # fmt: skip

_ONE = frozenset({
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil",
    "clamp", "clamp_max", "clamp_min", "complex", "conj_physical", "copysign", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor",
    "floor_divide", "fmax", "fmin", "fmod", "ge", "gt", "hypot", "isfinite", "isinf", "isnan", "le",
    "lgamma", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "lt", "masked_fill", "maximum", "minimum", "mul", "ne", "neg",
    "nextafter", "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "rsub", "sigmoid",
    "sign", "signbit", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh", "tril", "triu",
    "trunc", "where",
})  # fmt: skip


def known(name: str) -> bool:
    """Whether the count of this operator rests on a rule."""
    return any(name in group for group in (_ONE, MOVES, PER_INPUT, PER_OUTPUT, SORTS, MATRIX))
