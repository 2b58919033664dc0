"""Groups stages into kernels that run over one loop nest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from musacoder_inference.engines.synth.copies import (
    buffers_read,
    eliminate_copies,
    substitute,
)
from musacoder_inference.engines.synth.ir import (
    Buffer,
    Expr,
    Gather,
    Index,
    Load,
    Matmul,
    Op,
    Program,
    Reduce,
    Scan,
    Stage,
    Store,
    Target,
    leaves,
    regroup_strides,
    reindex,
    try_reshape,
)

# Fewer rows than this cannot keep the threads busy: a long reduction is then split instead.
FEW_ROWS = 8
LONG_ROW = 1 << 15

RowStage = Store | Reduce | Scan


@dataclass(frozen=True, slots=True)
class Loops:
    """Loop sizes: `outer` dimensions first, then `inner` ones (reduced, scanned or revisited)."""

    outer: tuple[int, ...]
    inner: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.outer + self.inner

    @property
    def rank(self) -> int:
        return len(self.outer) + len(self.inner)


@dataclass(frozen=True, slots=True)
class Pointwise:
    """Stores over the same loops (`loops.inner` is empty)."""

    loops: Loops
    stages: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Passes over rows: every stage runs for one row before the next row is begun. A Store over
    the outer loops only has 0 strides on the inner ones and `per_row` holds its position.
    `local` are the buffers that live no longer than a row."""

    loops: Loops
    stages: tuple[RowStage, ...]
    per_row: frozenset[int]
    local: frozenset[Buffer]


@dataclass(frozen=True, slots=True)
class Split:
    """Reductions of few, long rows: every thread reduces parts of a row, then parts are joined."""

    loops: Loops
    stages: tuple[Reduce, ...]


Kernel = Pointwise | Rows | Split | Matmul


@dataclass(slots=True)
class _Group:
    kind: str  # "pointwise", "rows", "split", "matmul"
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    stages: list[Stage] = field(default_factory=list)
    per_row: set[int] = field(default_factory=set)


def fuse(program: Program) -> list[Kernel]:
    """The kernels of a program, in execution order. Copies are removed from `program` first."""
    eliminate_copies(program)
    groups: list[_Group] = []
    for stage in program.stages:
        if 0 in _loop_shape(stage) and not isinstance(stage, Reduce | Matmul):
            continue
        _place(groups, stage)
    kernels: list[Kernel] = []
    for position, group in enumerate(groups):
        later = {b for g in groups[position + 1 :] for s in g.stages for b in buffers_read(s)}
        kernels.append(_kernel(group, later))
    return kernels


def _loop_shape(stage: Stage) -> tuple[int, ...]:
    if isinstance(stage, Matmul):
        return (*stage.batch, *stage.m, *stage.n, *stage.k)
    return stage.shape


def _place(groups: list[_Group], stage: Stage) -> None:
    """Adds `stage` to the earliest possible group that it fits, else to a new one."""
    needed = buffers_read(stage) | {stage.target.buffer}
    first = 0
    for position, group in enumerate(groups):
        written = {s.target.buffer for s in group.stages}
        if written & needed:
            first = position
    if not isinstance(stage, Matmul):
        for group in groups[first:]:
            if _join(group, stage):
                return
    groups.append(_new_group(stage))


def _new_group(stage: Stage) -> _Group:
    if isinstance(stage, Matmul):
        return _Group("matmul", (), (), [stage])
    if isinstance(stage, Store):
        return _Group("pointwise", stage.shape, (), [stage])
    dims = stage.dims if isinstance(stage, Reduce) else (stage.dim,)
    rows = prod(n for d, n in enumerate(stage.shape) if d not in dims)
    length = prod(stage.shape[d] for d in dims)
    few = (
        isinstance(stage, Reduce)
        and not stage.kind.startswith("arg")
        and rows < FEW_ROWS
        and length >= LONG_ROW
    )
    return _Group("split" if few else "rows", stage.shape, dims, [stage])


def _join(group: _Group, stage: RowStage) -> bool:
    if group.kind == "matmul" or prod(stage.shape) == 0:
        return False
    written = {s.target.buffer for s in group.stages}
    if stage.target.buffer in written:
        return False
    if group.kind == "split":
        fits = isinstance(stage, Reduce) and (stage.shape, stage.dims) == (group.shape, group.dims)
        if not fits or written & buffers_read(stage):
            return False
        group.stages.append(stage)
        return True
    moved = _over(stage, group)
    if moved is None:
        return False
    per_row, placed = moved
    if not all(_aligned(leaf, group) for leaf in leaves(placed.value)):
        return False
    if group.kind == "pointwise" and isinstance(placed, Reduce | Scan):
        return False
    if group.kind == "rows" and isinstance(placed, Store) and not (written & buffers_read(placed)):
        shared = {b for s in group.stages for b in buffers_read(s)} & buffers_read(placed)
        if not shared:
            return False
    if per_row:
        group.per_row.add(len(group.stages))
    group.stages.append(placed)
    return True


def _over(stage: RowStage, group: _Group) -> tuple[bool, RowStage] | None:
    """`stage` with its loops rewritten to those of `group`; True: once per row."""
    if isinstance(stage, Reduce | Scan):
        dims = stage.dims if isinstance(stage, Reduce) else (stage.dim,)
        if stage.shape == group.shape and dims == group.dims:
            return False, stage
        return None
    shapes = [(False, group.shape)]
    if group.kind == "rows":
        shapes.append((True, tuple(1 if d in group.dims else n for d, n in enumerate(group.shape))))
    for per_row, shape in shapes:
        if prod(shape) != prod(stage.shape):
            continue
        value = try_reshape(stage.value, stage.shape, shape)
        strides = regroup_strides(stage.shape, stage.target.strides, shape)
        if value is None or strides is None:
            continue
        if per_row:
            strides = tuple(0 if d in group.dims else s for d, s in enumerate(strides))
        target = Target(stage.target.buffer, stage.target.offset, strides)
        return per_row, Store(target, group.shape, value)
    return None


def _aligned(leaf: Load | Gather | Index, group: _Group) -> bool:
    """Whether a leaf that reads a buffer of the group reads the element just written there."""
    if isinstance(leaf, Index):
        return True
    for position, stage in enumerate(group.stages):
        if stage.target.buffer != leaf.buffer:
            continue
        if isinstance(leaf, Gather) or leaf.offset != stage.target.offset:
            return False
        del position
        pairs = zip(group.shape, leaf.strides, stage.target.strides, strict=True)
        if not all(n == 1 or a == b for n, a, b in pairs):
            return False
    return True


def _kernel(group: _Group, read_later: set[Buffer]) -> Kernel:
    if group.kind == "matmul":
        stage = group.stages[0]
        assert isinstance(stage, Matmul)
        return stage
    stages = [s for s in group.stages if not isinstance(s, Matmul)]
    local = {
        s.target.buffer
        for s in stages
        if s.target.buffer.role == "scratch" and s.target.buffer not in read_later
    }
    stages, per_row = _inline_local_stores(stages, group.per_row, local)
    return _canonical(group, stages, per_row, frozenset(local))


def _inline_local_stores(
    stages: list[RowStage], per_row: set[int], local: set[Buffer]
) -> tuple[list[RowStage], set[int]]:
    """Replaces loads of stored local values by the values themselves."""
    table: dict[Load, Expr] = {}
    kept: list[RowStage] = []
    kept_per_row: set[int] = set()
    values: dict[Buffer, Expr] = {}
    for position, stage in enumerate(stages):
        for leaf in leaves(stage.value):
            if isinstance(leaf, Load) and leaf.buffer in values:
                table[leaf] = values[leaf.buffer]
        stage = replace(stage, value=substitute(stage.value, table))
        if isinstance(stage, Store) and stage.target.buffer in local:
            values[stage.target.buffer] = _rounded(stage.value, stage.target.buffer.dtype)
            continue
        if position in per_row:
            kept_per_row.add(len(kept))
        kept.append(stage)
    return kept, kept_per_row


def _rounded(value: Expr, dtype: str) -> Expr:
    return value if value.dtype == dtype else Op("cast", (value,), dtype)


def _canonical(
    group: _Group, stages: list[RowStage], per_row: set[int], local: frozenset[Buffer]
) -> Kernel:
    """Outer loops first, loops of size 1 dropped, adjacent loops merged where every access
    allows."""
    outer = [d for d, n in enumerate(group.shape) if d not in group.dims and n != 1]
    inner = [d for d in group.dims if group.shape[d] != 1]
    if group.kind == "pointwise" and stages:
        outer = _by_stride(outer, stages, group.shape)
    accesses = [leaf.strides for s in stages for leaf in leaves(s.value)]
    accesses += [s.target.strides for s in stages]
    outer_chunks = merge_dims(outer, group.shape, accesses)
    inner_chunks = merge_dims(inner, group.shape, accesses) or [[]]
    chunks = outer_chunks + inner_chunks

    def project(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(strides[chunk[-1]] if chunk else 0 for chunk in chunks)

    sizes = [prod(group.shape[d] for d in chunk) for chunk in chunks]
    if group.kind == "pointwise":
        chunks, sizes = outer_chunks, sizes[: len(outer_chunks)]
        if not chunks:
            chunks, sizes = [[]], [1]
        loops = Loops(tuple(sizes))
    else:
        loops = Loops(tuple(sizes[: len(outer_chunks)]), tuple(sizes[len(outer_chunks) :]))
    renewed = [_project(s, loops, project) for s in stages]
    if group.kind == "pointwise":
        return Pointwise(loops, tuple(s for s in renewed if isinstance(s, Store)))
    if group.kind == "split":
        return Split(loops, tuple(s for s in renewed if isinstance(s, Reduce)))
    return Rows(loops, tuple(renewed), frozenset(per_row), local)


def _project(stage: RowStage, loops: Loops, project: object) -> RowStage:
    assert callable(project)
    value = reindex(stage.value, lambda o, s: (o, project(s)))
    target = Target(stage.target.buffer, stage.target.offset, project(stage.target.strides))
    inner = tuple(range(len(loops.outer), loops.rank))
    if isinstance(stage, Reduce):
        return Reduce(target, loops.shape, inner, stage.kind, value)
    if isinstance(stage, Scan):
        return Scan(target, loops.shape, inner[0], stage.kind, value)
    return Store(target, loops.shape, value)


def _by_stride(dims: list[int], stages: list[RowStage], shape: tuple[int, ...]) -> list[int]:
    """Loops of a pointwise kernel in the order of the first result's memory."""
    strides = stages[0].target.strides
    return sorted(dims, key=lambda d: -abs(strides[d]))


def merge_dims(
    dims: list[int], shape: tuple[int, ...], accesses: list[tuple[int, ...]]
) -> list[list[int]]:
    """Groups of adjacent loops that every access steps through as through one loop."""
    chunks: list[list[int]] = []
    for d in dims:
        if chunks:
            before = chunks[-1][-1]
            if all(s[before] == s[d] * shape[d] for s in accesses):
                chunks[-1].append(d)
                continue
        chunks.append([d])
    return chunks
