"""Matrix products and convolutions."""

from __future__ import annotations

from musacoder_inference.engines.synth.dtypes import is_float
from musacoder_inference.engines.synth.from_graph.builder import Builder, cast, elementwise
from musacoder_inference.engines.synth.from_graph.layout import split_dim
from musacoder_inference.engines.synth.from_graph.node import Node, number
from musacoder_inference.engines.synth.from_graph.registry import covers
from musacoder_inference.engines.synth.ir import (
    Const,
    Expr,
    Gather,
    Index,
    Load,
    Masked,
    Matmul,
    NotCovered,
    Op,
    Store,
    Target,
    Tensor,
    load,
    reindex,
    walk,
    whole,
)

# Up to this many rows or columns a product is bound by memory: a reduction reads each element once.
_THIN = 2


def product(builder: Builder, left: Tensor, right: Tensor, hint: str) -> Tensor:
    """`left (*batch, M, K) @ right (*batch, K, N)`."""
    if not is_float(left.dtype):
        raise NotCovered("a matrix product of integers is not covered by synth")
    *batch, m, k = left.shape
    n = right.shape[-1]
    rank = len(batch)
    left_wide = left.unsqueeze(rank + 1).expand((*batch, m, n, k))
    right_wide = (
        right.permute((*range(rank), rank + 1, rank)).unsqueeze(rank).expand((*batch, m, n, k))
    )
    if min(m, n) <= _THIN or k <= 1:
        dtype = "float64" if left.dtype == "float64" else "float32"
        terms = elementwise("mul", dtype, left_wide.shape, left_wide, right_wide)
        total = builder.reduce(terms, (rank + 2,), "sum", hint)
        return Tensor(total.shape, cast(total.expr, left.dtype))
    return _contract(builder, tuple(batch), (m,), (n,), (k,), left_wide.expr, right_wide.expr, hint)


def _contract(
    builder: Builder,
    batch: tuple[int, ...],
    m: tuple[int, ...],
    n: tuple[int, ...],
    k: tuple[int, ...],
    left: Expr,
    right: Expr,
    hint: str,
) -> Tensor:
    """A Matmul stage; its operands are inlined into packing only where that is cheap."""
    dtype = left.dtype
    buffer = builder.buffer(hint, dtype, (*batch, *m, *n))
    shape = (*batch, *m, *n, *k)
    rank = (len(batch), len(m), len(n), len(k))
    left = _packable(builder, left, shape, _positions(rank, "n"), hint + "_left")
    right = _packable(builder, right, shape, _positions(rank, "m"), hint + "_right")
    stage = Matmul(whole(buffer), batch, m, n, k, left, right)
    builder.program.stages.append(stage)
    return load(buffer)


def _positions(rank: tuple[int, int, int, int], group: str) -> tuple[int, ...]:
    start = rank[0] if group == "m" else rank[0] + rank[1]
    return tuple(range(start, start + rank[1 if group == "m" else 2]))


def _packable(
    builder: Builder, expr: Expr, shape: tuple[int, ...], unused: tuple[int, ...], hint: str
) -> Expr:
    """`expr` itself if it is cheap to evaluate several times, else a load of a stored copy."""
    costly = any(isinstance(e, Op) and e.name not in _CHEAP for e in walk(expr))
    loads = sum(isinstance(e, Load | Gather) for e in walk(expr))
    if not costly and loads <= 2:
        return expr
    kept = [d for d in range(len(shape)) if d not in unused]
    used_shape = tuple(shape[d] for d in kept)
    value = Tensor(used_shape, reindex(expr, lambda o, s: (o, tuple(s[d] for d in kept))))
    stored = builder.materialize(value, hint)

    def spread(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        table = dict(zip(kept, strides, strict=True))
        return offset, tuple(table.get(d, 0) for d in range(len(shape)))

    return reindex(stored.expr, spread)


_CHEAP = (
    "add",
    "sub",
    "mul",
    "neg",
    "cast",
    "where",
    "maximum",
    "minimum",
    "relu",
    "lt",
    "le",
    "gt",
    "ge",
)


@covers("matmul", "aten.mm.default", "aten.bmm.default")
def _matmul(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "mat2"))
    return product(builder, left, right, node.name)


@covers("matmul", "aten.mv.default")
def _matrix_vector(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "vec"))
    return product(builder, left, right.unsqueeze(1), node.name).squeeze(1)


@covers("matmul", "aten.dot.default")
def _dot(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node.arg(0, "self")), builder.tensor(node.arg(1, "tensor"))
    result = product(builder, left.unsqueeze(0), right.unsqueeze(1), node.name)
    return result.squeeze(1).squeeze(0)


@covers("matmul", "aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def _add_matmul(builder: Builder, node: Node) -> Tensor:
    bias = builder.tensor(node.arg(0, "self"))
    left, right = builder.tensor(node.arg(1, "mat1")), builder.tensor(node.arg(2, "mat2"))
    beta, alpha = node.arg(3, "beta", 1), node.arg(4, "alpha", 1)
    vector = node.operator.startswith("aten.addmv")
    result = product(builder, left, right.unsqueeze(1) if vector else right, node.name)
    result = result.squeeze(1) if vector else result
    dtype, shape = node.dtype(), node.shape()
    if alpha != 1:
        result = elementwise("mul", dtype, shape, result, Tensor((), Const(number(alpha), dtype)))
    if beta == 0:
        return result
    if beta != 1:
        bias = elementwise("mul", dtype, bias.shape, bias, Tensor((), Const(number(beta), dtype)))
    return elementwise("add", dtype, shape, result, bias)


@covers("convolution", "aten.convolution.default", note="zero padding only")
def _convolution(builder: Builder, node: Node) -> Tensor:
    value, weight = builder.tensor(node.arg(0, "input")), builder.tensor(node.arg(1, "weight"))
    stride, padding, dilation = (list(node.arg(i, "")) for i in (3, 4, 5))
    transposed, groups = node.arg(6, "transposed"), node.arg(8, "groups")
    spatial = len(value.shape) - 2
    stride, padding, dilation = (
        x * spatial if len(x) == 1 else x for x in (stride, padding, dilation)
    )
    if not is_float(value.dtype):
        raise NotCovered("convolution of integers is not covered by synth")
    output = node.shape()[2:]
    if transposed:
        result = _transposed(
            builder, value, weight, output, stride, padding, dilation, groups, node.name
        )
    else:
        result = _direct(
            builder, value, weight, output, stride, padding, dilation, groups, node.name
        )
    bias = node.arg(2, "bias")
    if bias is None:
        return result
    channels = builder.tensor(bias)
    for _ in range(spatial):
        channels = channels.unsqueeze(len(channels.shape))
    return elementwise("add", node.dtype(), node.shape(), result, channels)


def _direct(
    builder: Builder, value: Tensor, weight: Tensor, output: tuple[int, ...],
    stride: list[int], padding: list[int], dilation: list[int], groups: int, hint: str,
) -> Tensor:  # fmt: skip
    """Loops (N, G, M | output pixels | C/G, taps); the input is read through affine indices."""
    count, channels = value.shape[:2]
    out_channels, per_group = weight.shape[0], channels // groups
    taps = weight.shape[2:]
    spatial = len(taps)
    batch, m, k = (count, groups), (out_channels // groups,), (per_group, *taps)
    shape = (*batch, *m, *output, *k)
    grouped = split_dim(value, 1, (groups, per_group))
    pixels, tap_at = 3, 3 + spatial + 1

    def read(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        new = [0] * len(shape)
        new[0], new[1], new[3 + spatial] = strides[0], strides[1], strides[2]
        for d in range(spatial):
            offset -= strides[3 + d] * padding[d]
            new[pixels + d] = strides[3 + d] * stride[d]
            new[tap_at + d] = strides[3 + d] * dilation[d]
        return offset, tuple(new)

    bounds = []
    for d in range(spatial):
        index = [0] * len(shape)
        index[pixels + d], index[tap_at + d] = stride[d], dilation[d]
        last = (output[d] - 1) * stride[d] + (taps[d] - 1) * dilation[d] - padding[d]
        if padding[d] > 0 or last >= value.shape[2 + d]:
            bounds.append((Index(-padding[d], tuple(index)), value.shape[2 + d]))
    _, plain = builder.as_load(grouped, hint + "_input")
    image: Expr = reindex(plain, read)
    if bounds:
        image = Masked(image, Const(0, value.dtype), bounds)
    _, plain_kernel = builder.as_load(split_dim(weight, 0, (groups, m[0])), hint + "_weight")

    def read_weight(offset: int, s: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return offset, (0, s[0], s[1], *(0 for _ in output), *s[2:])

    filters = reindex(plain_kernel, read_weight)
    return _convolve(builder, batch, m, output, k, filters, image, hint)


def _convolve(
    builder: Builder, batch: tuple[int, ...], m: tuple[int, ...], output: tuple[int, ...],
    k: tuple[int, ...], filters: Expr, image: Expr, hint: str,
) -> Tensor:  # fmt: skip
    """A Matmul; with few output channels per group (depthwise) a direct sum over the taps."""
    shape = (*batch, *m, *output, *k)
    merged = (batch[0], batch[1] * m[0], *output)
    if m[0] <= _THIN:
        dtype = "float64" if image.dtype == "float64" else "float32"
        terms = Op("mul", (cast(filters, dtype), cast(image, dtype)), dtype)
        dims = tuple(range(len(shape) - len(k), len(shape)))
        total = builder.reduce(Tensor(shape, terms), dims, "sum", hint)
        result = Tensor(total.shape, cast(total.expr, image.dtype))
    else:
        result = _contract(builder, batch, m, output, k, filters, image, hint)
    return builder.reshape(result, merged, hint)


def _transposed(
    builder: Builder, value: Tensor, weight: Tensor, output: tuple[int, ...],
    stride: list[int], padding: list[int], dilation: list[int], groups: int, hint: str,
) -> Tensor:  # fmt: skip
    """Gathers instead of scattering: output pixel `o` takes input `(o + padding - tap * dilation) /
    stride` where that divides. The input is first spread with zeros, so that the index is
    affine."""
    channels = value.shape[1]
    spatial = len(output)
    taps = weight.shape[2:]
    spread = value
    if any(s != 1 for s in stride):
        spread = _insert_zeros(builder, value, stride, hint)
    per_group, per_out = channels // groups, weight.shape[1]
    # The equivalent direct convolution has its taps mirrored, its channels swapped, and the padding
    # (taps - 1) * dilation - padding.
    mirrored = weight
    for d in range(spatial):
        mirrored = mirrored.flip(2 + d)
    grouped = split_dim(mirrored, 0, (groups, per_group))
    swapped = grouped.permute((0, 2, 1, *range(3, 3 + spatial)))
    kernel = builder.materialize(swapped, hint + "_weight")
    kernel = builder.reshape(kernel, (groups * per_out, per_group, *taps), hint + "_weight")
    equivalent = [(taps[d] - 1) * dilation[d] - padding[d] for d in range(spatial)]
    return _direct(
        builder, spread, kernel, output, [1] * spatial, equivalent, dilation, groups, hint
    )


def _insert_zeros(builder: Builder, value: Tensor, stride: list[int], hint: str) -> Tensor:
    """`stride - 1` zeros between the pixels: scratch filled with zeros, then strided stores."""
    shape = (
        *value.shape[:2],
        *((n - 1) * s + 1 for n, s in zip(value.shape[2:], stride, strict=True)),
    )
    buffer = builder.buffer(hint + "_spread", value.dtype, shape)
    builder.program.stages.append(Store(whole(buffer), shape, Const(0, value.dtype)))
    steps = (1, 1, *stride)
    strides = tuple(s * step for s, step in zip(buffer.strides, steps, strict=True))
    builder.program.stages.append(Store(Target(buffer, 0, strides), value.shape, value.expr))
    return load(buffer)
