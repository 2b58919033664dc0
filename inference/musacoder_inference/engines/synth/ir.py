"""The intermediate form: lazy element expressions over affine indices, and the stages that store.

A `Tensor` is a shape and an expression that gives the element at loop indices `i0 .. i(d-1)`. Every
view (permute, slice, expand, flip, most reshapes) only rewrites the affine indices of the leaves,
so it costs nothing. A `Stage` is what must be executed: it stores an expression, or a reduction,
scan or matrix product of expressions, into a Buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod
from typing import Literal

from musacoder_inference.engines.synth.dtypes import is_float


class NotCovered(Exception):
    """synth cannot write this; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Contiguous memory of `shape`. `role` says who owns it: the caller's tensor, a result, or
    scratch between kernels."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Literal["input", "output", "scratch"]

    @property
    def strides(self) -> tuple[int, ...]:
        return contiguous_strides(self.shape)

    @property
    def numel(self) -> int:
        return prod(self.shape)


class Expr:
    """An element expression; equal text means equal value (`key` is a content digest, so that
    sharing is found in graphs whose tree form would be exponentially large)."""

    __slots__ = ("args", "dtype", "key")
    dtype: str
    key: bytes
    args: tuple[Expr, ...]

    def __init__(self, dtype: str, args: tuple[Expr, ...], *parts: object) -> None:
        self.dtype = dtype
        self.args = args
        digest = blake2b(repr((type(self).__name__, dtype, parts)).encode(), digest_size=16)
        for arg in args:
            digest.update(arg.key)
        self.key = digest.digest()

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.key == other.key


class Load(Expr):
    """`buffer[offset + sum(strides[d] * i_d)]`."""

    __slots__ = ("buffer", "offset", "strides")

    def __init__(self, buffer: Buffer, offset: int, strides: tuple[int, ...]) -> None:
        super().__init__(buffer.dtype, (), buffer, offset, strides)
        self.buffer = buffer
        self.offset = offset
        self.strides = strides


class Gather(Expr):
    """`buffer[offset + sum(strides[d] * i_d) + step * index]`, `0 <= index < size` (checked)."""

    __slots__ = ("buffer", "offset", "size", "step", "strides")

    def __init__(
        self,
        buffer: Buffer,
        offset: int,
        strides: tuple[int, ...],
        index: Expr,
        step: int,
        size: int,
    ) -> None:
        super().__init__(buffer.dtype, (index,), buffer, offset, strides, step, size)
        self.buffer = buffer
        self.offset = offset
        self.strides = strides
        self.step = step
        self.size = size


class Masked(Expr):
    """`value` where every `0 <= index < size` of `bounds` holds, else `other`; `value` is not
    evaluated elsewhere, so it may be an out-of-range load."""

    __slots__ = ("sizes",)

    def __init__(self, value: Expr, other: Expr, bounds: Sequence[tuple[Expr, int]]) -> None:
        self.sizes = tuple(size for _, size in bounds)
        super().__init__(value.dtype, (value, other, *(i for i, _ in bounds)), self.sizes)


class Const(Expr):
    __slots__ = ("value",)

    def __init__(self, value: float | int | bool, dtype: str) -> None:
        value = bool(value) if dtype == "bool" else float(value) if is_float(dtype) else int(value)
        super().__init__(dtype, (), repr(value))
        self.value = value


class Index(Expr):
    """The integer `offset + sum(strides[d] * i_d)`."""

    __slots__ = ("offset", "strides")

    def __init__(self, offset: int, strides: tuple[int, ...]) -> None:
        super().__init__("int64", (), offset, strides)
        self.offset = offset
        self.strides = strides


class Op(Expr):
    """A scalar operation; the names are those of `operations.OPERATIONS`."""

    __slots__ = ("name",)

    def __init__(self, name: str, args: tuple[Expr, ...], dtype: str) -> None:
        super().__init__(dtype, args, name)
        self.name = name


Leaf = Load | Gather | Index
IndexMap = Callable[[int, tuple[int, ...]], tuple[int, tuple[int, ...]]]


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every distinct sub-expression once, arguments before users."""
    seen: set[bytes] = set()
    for root in roots:
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if ready:
                yield expr
            elif expr.key not in seen:
                seen.add(expr.key)
                stack.append((expr, True))
                stack.extend((arg, False) for arg in reversed(expr.args))


def leaves(*roots: Expr) -> Iterator[Leaf]:
    for expr in walk(*roots):
        if isinstance(expr, Load | Gather | Index):
            yield expr


def rebuild(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """`expr` with other arguments."""
    if isinstance(expr, Op):
        return Op(expr.name, args, expr.dtype)
    if isinstance(expr, Masked):
        return Masked(args[0], args[1], list(zip(args[2:], expr.sizes, strict=True)))
    if isinstance(expr, Gather):
        return Gather(expr.buffer, expr.offset, expr.strides, args[0], expr.step, expr.size)
    return expr


def transform(root: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """Applies `rewrite` bottom-up, once per distinct sub-expression."""
    done: dict[bytes, Expr] = {}
    for expr in walk(root):
        args = tuple(done[a.key] for a in expr.args)
        done[expr.key] = rewrite(rebuild(expr, args) if expr.args else expr)
    return done[root.key]


def reindex(root: Expr, index_map: IndexMap) -> Expr:
    """Rewrites the affine index of every leaf."""

    def rewrite(expr: Expr) -> Expr:
        if isinstance(expr, Load):
            return Load(expr.buffer, *index_map(expr.offset, expr.strides))
        if isinstance(expr, Index):
            return Index(*index_map(expr.offset, expr.strides))
        if isinstance(expr, Gather):
            offset, strides = index_map(expr.offset, expr.strides)
            return Gather(expr.buffer, offset, strides, expr.args[0], expr.step, expr.size)
        return expr

    return transform(root, rewrite)


def regroup_strides(
    shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides of `new_shape` over the same memory, or None where no view exists."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    position = 0
    pending: list[tuple[int, int]] = []  # sizes of new dims still open in this chunk
    new = list(new_shape)
    j = 0
    while j < len(new):
        if new[j] == 1:
            result.append(0)
            j += 1
            continue
        if position >= len(old):
            return None
        old_product, new_product = old[position][0], new[j]
        first, last = position, position + 1
        pending = [(j, new[j])]
        j += 1
        while old_product != new_product:
            if new_product < old_product:
                if j >= len(new):
                    return None
                new_product *= new[j]
                pending.append((j, new[j]))
                j += 1
            else:
                if last >= len(old):
                    return None
                old_product *= old[last][0]
                last += 1
        for k in range(first, last - 1):
            if old[k][1] != old[k + 1][1] * old[k + 1][0]:
                return None
        step = old[last - 1][1]
        chunk = []
        for _, size in reversed(pending):
            chunk.append(step if size != 1 else 0)
            step *= size
        result.extend(reversed(chunk))
        position = last
    return tuple(result) if position == len(old) else None


def try_reshape(root: Expr, shape: Sequence[int], new_shape: Sequence[int]) -> Expr | None:
    """`root` over `new_shape`, or None where some leaf has no affine index there."""
    if prod(shape) == 0:
        return reindex(root, lambda offset, strides: (offset, (0,) * len(new_shape)))
    table: dict[tuple[int, ...], tuple[int, ...]] = {}
    for leaf in leaves(root):
        if leaf.strides not in table:
            strides = regroup_strides(shape, leaf.strides, new_shape)
            if strides is None:
                return None
            table[leaf.strides] = strides
    return reindex(root, lambda offset, strides: (offset, table[strides]))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A lazy value: element `(i0, ..)` of `shape` is `expr`."""

    shape: tuple[int, ...]
    expr: Expr

    @property
    def dtype(self) -> str:
        return self.expr.dtype

    def permute(self, dims: Sequence[int]) -> Tensor:
        shape = tuple(self.shape[d] for d in dims)
        return Tensor(shape, reindex(self.expr, lambda o, s: (o, tuple(s[d] for d in dims))))

    def expand(self, shape: Sequence[int]) -> Tensor:
        """Broadcasts to `shape`, adding leading dimensions."""
        lead = len(shape) - len(self.shape)
        keep = [n == 1 and shape[lead + d] != 1 for d, n in enumerate(self.shape)]

        def index_map(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
            tail = tuple(0 if wide else s for s, wide in zip(strides, keep, strict=True))
            return offset, (0,) * lead + tail

        return Tensor(tuple(shape), reindex(self.expr, index_map))

    def slice(self, dim: int, start: int, size: int, step: int = 1) -> Tensor:
        """`size` elements from `start` in steps of `step`, which may be negative."""

        def index_map(offset: int, strides: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
            changed = (*strides[:dim], strides[dim] * step, *strides[dim + 1 :])
            return offset + strides[dim] * start, changed

        shape = (*self.shape[:dim], size, *self.shape[dim + 1 :])
        return Tensor(shape, reindex(self.expr, index_map))

    def flip(self, dim: int) -> Tensor:
        size = self.shape[dim]
        return self.slice(dim, max(size - 1, 0), size, -1)

    def squeeze(self, dim: int) -> Tensor:
        """Drops a dimension of size 1 (or selects its element 0)."""
        shape = self.shape[:dim] + self.shape[dim + 1 :]
        return Tensor(shape, reindex(self.expr, lambda o, s: (o, s[:dim] + s[dim + 1 :])))

    def unsqueeze(self, dim: int) -> Tensor:
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        return Tensor(shape, reindex(self.expr, lambda o, s: (o, (*s[:dim], 0, *s[dim:]))))

    def pad_index(self, dim: int, low: int, high: int, other: Expr) -> Tensor:
        """Constant padding: `other` outside the old range."""
        size = self.shape[dim]
        rank = len(self.shape)
        shape = (*self.shape[:dim], size + low + high, *self.shape[dim + 1 :])
        inner = self.slice(dim, -low, shape[dim])
        index = Index(-low, tuple(int(d == dim) for d in range(rank)))
        return Tensor(shape, Masked(inner.expr, other, [(index, size)]))


def load(buffer: Buffer) -> Tensor:
    return Tensor(buffer.shape, Load(buffer, 0, buffer.strides))


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stage stores element `(i0, ..)`: `buffer[offset + sum(strides[d] * i_d)]`."""

    buffer: Buffer
    offset: int
    strides: tuple[int, ...]


def whole(buffer: Buffer) -> Target:
    return Target(buffer, 0, buffer.strides)


@dataclass(frozen=True, slots=True)
class Store:
    """`target[i] = value(i)` for every `i` in `shape`."""

    target: Target
    shape: tuple[int, ...]
    value: Expr


ReduceKind = Literal["sum", "prod", "max", "min", "argmax", "argmin", "any", "all"]


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reduces `value` over the dimensions `dims` of `shape`. `target` has strides for all
    dimensions of `shape`, 0 on the reduced ones; arg* give the index within `dims`."""

    target: Target
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    kind: ReduceKind
    value: Expr


@dataclass(frozen=True, slots=True)
class Scan:
    """Running sum or product of `value` along `dim` (first to last)."""

    target: Target
    shape: tuple[int, ...]
    dim: int
    kind: Literal["sum", "prod"]
    value: Expr


@dataclass(frozen=True, slots=True)
class Matmul:
    """`target[b.., m.., n..] = sum over k.. of left * right`.

    The loops are `(*batch, *m, *n, *k)`; `left` does not depend on `n`, `right` not on `m`, and
    `target` has strides for `(*batch, *m, *n)`. Several dimensions each, so that a convolution is
    a Matmul too: `n` its output pixels, `k` its channels and taps. `epilogue`, where present, is
    the stored value over `(*batch, *m, *n)`, and loads the sum from `accumulator`, which does not
    exist in memory.
    """

    target: Target
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    left: Expr
    right: Expr
    accumulator: Buffer | None = None
    epilogue: Expr | None = None


Stage = Store | Reduce | Scan | Matmul


@dataclass(frozen=True, slots=True)
class Argument:
    """One tensor that forward hands to the kernel; `source` is Python text such as `self.w`."""

    buffer: Buffer
    source: str


@dataclass(slots=True)
class Program:
    """Stages in execution order. `results` are the buffers that the kernel returns, in order."""

    arguments: list[Argument] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    results: list[Buffer] = field(default_factory=list)
