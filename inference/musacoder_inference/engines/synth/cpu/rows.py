"""Row kernels: several passes over a row (or over a block of neighbouring columns) while it is in
cache, as softmax and the norms need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from musacoder_inference.engines.synth.copies import substitute
from musacoder_inference.engines.synth.cpu.columns import ColumnPass
from musacoder_inference.engines.synth.cpu.emit import PARALLEL_WORK, loop, work
from musacoder_inference.engines.synth.cpu.row_pass import RowPass
from musacoder_inference.engines.synth.cpu.scopes import Names, Scope, ScopedPrinter, indent
from musacoder_inference.engines.synth.dtypes import COMPUTE_TYPE
from musacoder_inference.engines.synth.fuse import Rows
from musacoder_inference.engines.synth.ir import (
    Buffer,
    Expr,
    Load,
    Op,
    Reduce,
    Scan,
    Store,
    Target,
    contiguous_strides,
    leaves,
    transform,
    walk,
)
from musacoder_inference.engines.synth.operations import COSTLY

RowStage = Store | Reduce | Scan
# A row kept for the next pass should stay in the second-level cache.
_CACHE_BYTES = 1 << 18
_MAX_CACHED = 1 << 20
_SHORT_WINDOW = 64


@dataclass(slots=True)
class Pass:
    """Stages that share one loop over the row; none needs a result of another."""

    stages: list[RowStage] = field(default_factory=list)


def print_rows(kernel: Rows) -> tuple[list[str], bool]:
    """The body of the function, and whether it gathers."""
    columns = _by_columns(kernel)
    lanes = _lanes(kernel) if columns else 1
    stages, local, caches = _localize(kernel, columns, lanes)
    passes = _passes(stages, kernel.per_row)
    return _Printer(kernel, passes, local, caches, columns, lanes).body()


def _by_columns(kernel: Rows) -> bool:
    """Whether vectors should run over the innermost outer loop instead of along the row."""
    outer, inner = kernel.loops.outer, kernel.loops.inner
    if not outer or outer[-1] < 4:
        return False
    if prod(inner) <= _SHORT_WINDOW and outer[-1] >= 8:
        scans = any(isinstance(s, Scan) for s in kernel.stages)
        unit = [_unit(kernel, len(outer) - 1), _unit(kernel, kernel.loops.rank - 1)]
        if unit[0] >= unit[1] or (prod(inner) <= 16 and not scans):
            return True
    return _unit(kernel, len(outer) - 1) > _unit(kernel, kernel.loops.rank - 1)


def _unit(kernel: Rows, dim: int) -> int:
    """How many loads of the full loops are contiguous along `dim`."""
    count = 0
    for leaf in leaves(*(s.value for s in kernel.stages)):
        if isinstance(leaf, Load) and leaf.buffer not in kernel.local:
            count += abs(leaf.strides[dim]) == 1
    return count


def _lanes(kernel: Rows) -> int:
    """How many columns a block has: whole lines, and what is kept must stay in cache."""
    size = kernel.loops.outer[-1]
    row = prod(kernel.loops.inner)
    others = prod(kernel.loops.outer[:-1])
    lanes = 1024
    kept = any(isinstance(s, Scan) for s in kernel.stages) or len(kernel.stages) > 1
    if kept:
        while lanes > 32 and lanes * row * 4 > _CACHE_BYTES:
            lanes //= 2
    while lanes > 64 and others * -(-size // lanes) < 8:
        lanes //= 2
    if size < lanes:
        return size
    return lanes


def _localize(
    kernel: Rows, columns: bool, lanes: int
) -> tuple[list[RowStage], dict[Buffer, str], list[Buffer]]:
    """Replaces loads of results of earlier passes by loads of locals, and keeps costly values
    that several passes need."""
    rank, outer = kernel.loops.rank, len(kernel.loops.outer)
    lane = tuple(int(columns and d == outer - 1) for d in range(rank))
    inner_strides = contiguous_strides(kernel.loops.inner)
    full = tuple(lane[d] if d < outer else inner_strides[d - outer] * lanes for d in range(rank))
    local: dict[Buffer, str] = {}
    stages: list[RowStage] = []
    caches: list[Buffer] = []
    table: dict[Buffer, Load] = {}
    for stage in kernel.stages:

        def rewrite(expr: Expr, table: dict[Buffer, Load] = table) -> Expr:
            found = {
                leaf: table[leaf.buffer]
                for leaf in leaves(expr)
                if isinstance(leaf, Load) and leaf.buffer in table
            }
            return substitute(expr, found)

        value = rewrite(stage.value)
        buffer = stage.target.buffer
        if isinstance(stage, Reduce):
            kept = Buffer(f"row_{buffer.name}", buffer.dtype, (), "scratch")
            local[kept] = kept.name
            table[buffer] = Load(kept, 0, lane)
            stages.append(Reduce(stage.target, stage.shape, stage.dims, stage.kind, value))
        elif isinstance(stage, Scan):
            stages.append(Scan(stage.target, stage.shape, stage.dim, stage.kind, value))
            if any(
                buffer == leaf.buffer
                for s in kernel.stages
                for leaf in leaves(s.value)
                if isinstance(leaf, Load)
            ):
                kept = Buffer(f"row_{buffer.name}", _wide(buffer.dtype), (), "scratch")
                local[kept] = kept.name
                caches.append(kept)
                table[buffer] = Load(kept, 0, full)
        else:
            stages.append(Store(stage.target, stage.shape, value))
    if prod(kernel.loops.inner) * lanes <= _MAX_CACHED:
        stages = _keep_costly(kernel, stages, full, local, caches)
    return stages, local, caches


def _wide(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _keep_costly(
    kernel: Rows,
    stages: list[RowStage],
    full: tuple[int, ...],
    local: dict[Buffer, str],
    caches: list[Buffer],
) -> list[RowStage]:
    """Costly values that change along the row and that two passes need are stored in the first
    and loaded in the second."""
    outer = len(kernel.loops.outer)

    def along_row(expr: Expr) -> bool:
        return any(any(leaf.strides[outer:]) for leaf in leaves(expr))

    needed: dict[bytes, list[int]] = {}
    found: dict[bytes, Expr] = {}
    for position, stage in enumerate(stages):
        for expr in _topmost_costly(stage.value):
            needed.setdefault(expr.key, []).append(position)
            found[expr.key] = expr
    result: list[RowStage] = list(stages)
    inserted: list[tuple[int, Store]] = []
    for key, positions in needed.items():
        expr = found[key]
        everywhere = [p for p, s in enumerate(stages) if any(e.key == key for e in walk(s.value))]
        if len(everywhere) < 2 or not along_row(expr):
            continue
        kept = Buffer(f"kept_{len(caches)}", _wide(expr.dtype), (), "scratch")
        local[kept] = kept.name
        caches.append(kept)
        inserted.append((everywhere[0], Store(Target(kept, 0, full), kernel.loops.shape, expr)))
        replacement = Load(kept, 0, full)
        for p in everywhere[1:]:
            result[p] = _replace_value(result[p], key, replacement)
        del positions
    for position, store in sorted(inserted, key=lambda item: -item[0]):
        result.insert(position, store)
    return result


def _topmost_costly(root: Expr) -> list[Expr]:
    found: list[Expr] = []
    seen: set[bytes] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if expr.key in seen:
            continue
        seen.add(expr.key)
        if isinstance(expr, Op) and expr.name in COSTLY:
            found.append(expr)
        else:
            stack.extend(expr.args)
    return found


def _replace_value(stage: RowStage, key: bytes, by: Expr) -> RowStage:
    return replace(stage, value=transform(stage.value, lambda e: by if e.key == key else e))


def _passes(stages: list[RowStage], per_row: frozenset[int]) -> list[Pass]:
    """Stages in order; a new pass begins where a result of the running pass is needed."""
    passes: list[Pass] = []
    for stage in stages:
        if passes and not _depends(stage, passes[-1]) and not _scans(passes[-1], stage):
            passes[-1].stages.append(stage)
        else:
            passes.append(Pass([stage]))
    return passes


def _scans(running: Pass, stage: RowStage) -> bool:
    return any(isinstance(s, Scan) for s in (*running.stages, stage))


def _depends(stage: RowStage, running: Pass) -> bool:
    read = {leaf.buffer.name for leaf in leaves(stage.value) if isinstance(leaf, Load)}
    for other in running.stages:
        name = other.target.buffer.name
        if isinstance(other, Store):
            if name in read:
                return True
        elif f"row_{name}" in read:
            return True
    return False


class _Printer:
    def __init__(
        self, kernel: Rows, passes: list[Pass], local: dict[Buffer, str], caches: list[Buffer],
        columns: bool, lanes: int,
    ) -> None:  # fmt: skip
        self.kernel, self.passes, self.local, self.caches = kernel, passes, local, caches
        self.columns, self.lanes = columns, lanes
        loops = kernel.loops
        outer, rank = len(loops.outer), loops.rank
        self.names = [f"i{d}" for d in range(outer)] + [f"r{d}" for d in range(rank - outer)]
        if outer == 1:
            self.names[0] = "row"
        if rank - outer == 1:
            self.names[-1] = "r"
        local_names = list(self.names)
        depth = [d + 1 for d in range(rank)]
        if columns:
            self.names[outer - 1] = "(first + lane)"
            local_names[outer - 1] = "lane"
            depth = (
                [d + 1 for d in range(outer - 1)]
                + [rank]
                + [d + 1 for d in range(outer - 1, rank - 1)]
            )
        self.printer = ScopedPrinter(self.names, depth, Names(), local, local_names)

    def body(self) -> tuple[list[str], bool]:
        loops = self.kernel.loops
        values = [s.value for s in self.kernel.stages]
        self.printer.count_uses(*(s.value for p in self.passes for s in p.stages))
        outer = len(loops.outer) - (1 if self.columns else 0)
        scopes = [Scope(d) for d in range(outer + 1)]
        inside: list[str] = []
        for running in self.passes:
            if self.columns:
                lines = ColumnPass(
                    self.printer, loops, self.lanes, scopes, self.kernel.local
                ).lines(running.stages)
            else:
                lines = RowPass(self.printer, loops, scopes, self.kernel.local).lines(
                    running.stages
                )
            inside += self._take_hoisted(scopes) + lines
        parallel = work(prod(loops.shape), values) >= PARALLEL_WORK
        return self._outer_loops(inside, outer, parallel), self.printer.gathers

    def _take_hoisted(self, scopes: list[Scope]) -> list[str]:
        """Statements that the pass placed before its loops; those of enclosing loops too, since
        they may use results of earlier passes."""
        lines = [line for scope in scopes for line in scope.lines]
        for scope in scopes:
            scope.lines.clear()
        return lines

    def _outer_loops(self, inside: list[str], outer: int, parallel: bool) -> list[str]:
        sizes = self.kernel.loops.outer
        body = [*self._cache_pointers(), *inside]
        if self.columns:
            size = sizes[-1]
            head = [f"const int64_t lanes = std::min<int64_t>({self.lanes}, {size} - first);"]
            if size % self.lanes == 0:
                head = [f"constexpr int64_t lanes = {self.lanes};"]
            body = [
                f"for (int64_t first = 0; first < {size}; first += {self.lanes}) {{",
                *indent([*head, *body]),
                "}",
            ]
        check = " reduction(|:bad)" if self.printer.gathers else ""
        names = [self.names[d] for d in range(outer)]
        for d in range(outer - 1, -1, -1):
            body = loop(names[d], sizes[d], body)
        count = outer + (1 if self.columns else 0)
        collapse = f" collapse({count})" if count > 1 else ""
        if count and parallel:
            if self.caches:
                body = [f"#pragma omp for{collapse} schedule(static){check}", *body]
                return ["#pragma omp parallel", "{", *indent([*self._cache_memory(), *body]), "}"]
            return [f"#pragma omp parallel for{collapse} schedule(static){check}", *body]
        return [*self._cache_memory(), *body]

    def _cache_memory(self) -> list[str]:
        size = prod(self.kernel.loops.inner) * self.lanes
        return [
            f"std::vector<{COMPUTE_TYPE[b.dtype]}> {b.name}_memory({size});" for b in self.caches
        ]

    def _cache_pointers(self) -> list[str]:
        return [
            f"{COMPUTE_TYPE[b.dtype]}* __restrict__ {b.name} = {b.name}_memory.data();"
            for b in self.caches
        ]
