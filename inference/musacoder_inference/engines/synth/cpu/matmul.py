"""Matrix products and convolutions: packing and storing around the blocked product."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from musacoder_inference.engines.synth.cpu import gemm_prelude as _gemm_prelude  # registers gemm
from musacoder_inference.engines.synth.cpu.scopes import Names, Scope, ScopedPrinter, indent
from musacoder_inference.engines.synth.fuse import merge_dims
from musacoder_inference.engines.synth.ir import (
    Buffer,
    Expr,
    Load,
    Matmul,
    Target,
    leaves,
    reindex,
)

_PIECE = _gemm_prelude.__name__


def print_matmul(stage: Matmul) -> tuple[list[str], bool]:
    """The body of the function, and whether it gathers (never)."""
    kind = "double" if stage.target.buffer.dtype == "float64" else "float"
    sizes = [prod(part) for part in (stage.batch, stage.m, stage.n, stage.k)]
    lines = [f"gemm<{kind}>({', '.join(map(str, sizes))},"]
    lines += indent(
        [*_pack(stage, kind, left=True), *_pack(stage, kind, left=False), *_store(stage, kind)], 2
    )
    return lines, False


class _Axes:
    """The merged loops of one operand: which groups of loops it has and how their flat index
    splits into them."""

    def __init__(
        self, stage: Matmul, groups: str, exprs: Sequence[Expr], targets: Sequence[Target] = ()
    ) -> None:
        sizes = {"b": stage.batch, "m": stage.m, "n": stage.n, "k": stage.k}
        shape = stage.batch + stage.m + stage.n + stage.k
        # A target and an epilogue have no k loops.
        pad = (0,) * len(stage.k)
        accesses = [
            leaf.strides + pad[: len(shape) - len(leaf.strides)]
            for e in exprs
            for leaf in leaves(e)
        ]
        accesses += [t.strides + pad[: len(shape) - len(t.strides)] for t in targets]
        self.sizes: dict[str, list[int]] = {}
        self.chunks: list[list[int]] = []
        self.groups: list[str] = []
        start = 0
        for group, part in sizes.items():
            dims = [d for d in range(start, start + len(part)) if shape[d] != 1]
            start += len(part)
            if group not in groups:
                continue
            merged = merge_dims(dims, shape, accesses)
            self.sizes[group] = [prod(shape[d] for d in chunk) for chunk in merged]
            self.chunks += merged
            self.groups += [group] * len(merged)
        self._rank = len(shape)

    def project(self, expr: Expr) -> Expr:
        return reindex(expr, lambda o, s: (o, self._pick(s)))

    def target(self, target: Target) -> Target:
        return Target(target.buffer, target.offset, self._pick(target.strides))

    def _pick(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        padded = strides + (0,) * (self._rank - len(strides))
        return tuple(padded[chunk[-1]] for chunk in self.chunks)

    def names(self, group: str, prefix: str) -> list[str]:
        count = len(self.sizes[group])
        return [prefix] if count == 1 else [f"{prefix}{d}" for d in range(count)]

    def split(self, group: str, prefix: str, flat: str) -> list[str]:
        """Statements that split the flat index into the loops of a group."""
        sizes = self.sizes[group]
        if len(sizes) == 1:
            return [] if prefix == flat else [f"const int64_t {prefix} = {flat};"]
        lines = []
        for d, name in enumerate(self.names(group, prefix)):
            step = prod(sizes[d + 1 :])
            quotient = (
                flat if step == 1 else f"({flat}) / {step}" if " " in flat else f"{flat} / {step}"
            )
            grouped = f"({flat})" if " " in flat and step == 1 else quotient
            lines.append(
                f"const int64_t {name} = {quotient};"
                if d == 0
                else f"const int64_t {name} = {grouped} % {sizes[d]};"
            )
        return lines


def _stride_of(expr: Expr, axes: _Axes, group: str) -> int:
    """The step in memory along the innermost loop of a group; large where unknown."""
    position = max((i for i, g in enumerate(axes.groups) if g == group), default=None)
    if position is None:
        return 0
    strides = [
        abs(leaf.strides[position]) for leaf in leaves(axes.project(expr)) if isinstance(leaf, Load)
    ]
    return max(strides, default=0)


def _pack(stage: Matmul, kind: str, left: bool) -> list[str]:
    """The lambda that packs a panel: `ROWS` rows of the left operand or `COLUMNS` columns of the
    right one, for `depth` values of k."""
    group, letter = ("m", "i") if left else ("n", "j")
    expr = stage.left if left else stage.right
    axes = _Axes(stage, "b" + group + "k", [expr])
    count = "rows" if left else "columns"
    width = f"Blocking<{kind}>::{count}"
    value = axes.project(expr)
    batch = axes.names("b", "batch")
    across = axes.names(group, letter + "s")
    along = axes.names("k", "p")
    names: list[str] = []
    depths: list[int] = []
    multi = len(across) > 1
    k_outside = left is False or _stride_of(expr, axes, group) <= 1
    if multi:
        across = [f"{name}_of[{letter}]" for name in across]
    for chunk_group in axes.groups:
        pool = {"b": batch, group: across, "k": along}[chunk_group]
        used = len([n for n in names if n in pool])
        names.append(pool[used])
        level = {"b": 1, group: 3 if k_outside else 2, "k": 2 if k_outside else 3}[chunk_group]
        depths.append(level)
    printer = ScopedPrinter(names, depths, Names())
    printer.count_uses(value)
    scopes = [Scope(0), Scope(1), Scope(2), Scope(3)]
    text = printer.text(value, scopes)
    split_across = axes.split(group, letter + "s", f"{letter}0 + {letter}")
    split_k = axes.split("k", "p", "k0 + k")
    one_across = (
        []
        if multi
        else (
            split_across or [f"const int64_t {letter}s = {letter}0 + {letter};"]
            if axes.sizes[group]
            else []
        )
    )
    store = f"to[k * {width} + {letter}] = {text};"
    columns_loop = f"for (int64_t {letter} = 0; {letter} < {count}; ++{letter}) {{"
    depth_loop = "for (int64_t k = 0; k < depth; ++k) {"
    pad_value = f"to[k * {width} + {letter}] = 0;"
    pad = [f"for (int64_t {letter} = {count}; {letter} < {width}; ++{letter}) {pad_value}"]
    arguments = (
        f"(int64_t batch, int64_t i0, int64_t rows, int64_t k0, int64_t depth, {kind}* to)"
        if left
        else f"(int64_t batch, int64_t k0, int64_t depth, int64_t j0, int64_t columns, {kind}* to)"
    )
    body = [*axes.split("b", "batch", "batch"), *scopes[0].lines, *scopes[1].lines]
    if multi:
        body += _position_arrays(axes, group, letter, count, width)
    if k_outside:
        inner = [*one_across, *scopes[3].lines, store]
        simd = ["#pragma omp simd"] if not multi else []
        body += [
            depth_loop,
            *indent([*split_k, *scopes[2].lines, *simd, columns_loop, *indent(inner), "}", *pad]),
            "}",
        ]
    else:
        inner = [*split_k, *scopes[3].lines, store]
        body += [
            columns_loop,
            *indent([*one_across, *scopes[2].lines, depth_loop, *indent(inner), "}"]),
            "}",
        ]
        body += [f"if ({count} < {width}) {{", *indent([depth_loop, *indent(pad), "}"]), "}"]
    if not batch or axes.sizes["b"] == []:
        arguments = arguments.replace("int64_t batch", "int64_t")
    if not axes.sizes["k"]:
        arguments = arguments.replace("int64_t k0", "int64_t")
    if not axes.sizes[group]:
        arguments = arguments.replace(f"int64_t {letter}0", "int64_t")
    return [f"[=]{arguments} {{", *indent(_without_unused(body)), "},"]


def _without_unused(lines: Sequence[str]) -> list[str]:
    """Drops coordinates that nothing reads."""
    kept = list(lines)
    for line in reversed(lines):
        match = re.match(r"\s*const int64_t (\w+) = ", line)
        if match and sum(bool(re.search(rf"\b{match[1]}\b", other)) for other in kept) == 1:
            kept.remove(line)
    return kept


def _position_arrays(axes: _Axes, group: str, letter: str, count: str, width: str) -> list[str]:
    """Coordinates of the columns of a panel, worked out once for all k."""
    names = axes.names(group, letter + "s")
    declared = [f"int64_t {name}_of[{width}];" for name in names]
    split = axes.split(group, letter + "s", f"{letter}0 + {letter}")
    kept = [f"{name}_of[{letter}] = {name};" for name in names]
    head = f"for (int64_t {letter} = 0; {letter} < {count}; ++{letter}) {{"
    return [*declared, head, *indent([*split, *kept]), "}"]


def _store(stage: Matmul, kind: str) -> list[str]:
    """The lambda that takes a row of sums, with the epilogue."""
    accumulator = stage.accumulator or Buffer(
        "sum", "float64" if kind == "double" else "float32", (), "scratch"
    )
    rank = len(stage.batch) + len(stage.m) + len(stage.n)
    value = stage.epilogue if stage.epilogue is not None else Load(accumulator, 0, (0,) * rank)
    axes = _Axes(stage, "bmn", [value], [stage.target])
    marked = axes.project(value)
    target = axes.target(stage.target)
    names = [
        n
        for g in "bmn"
        for n in axes.names(g, {"b": "batch", "m": "row", "n": "column"}[g])
        if axes.sizes[g]
    ]
    level = {"b": 0, "m": 0, "n": 1}
    printer = ScopedPrinter(
        names, [level[g] for g in axes.groups], Names(), {accumulator: "sums[j]"}
    )
    printer.count_uses(marked)
    # The sum changes with every column, whatever loops the rest of the epilogue has.
    printer.pin(marked, accumulator, 1)
    scopes = [Scope(0), Scope(1)]
    text = printer.text(marked, scopes)
    statement = printer.store(target, text)
    column = axes.split("n", "column", "j0 + j")
    inner = [*column, *scopes[1].lines, statement]
    simd = ["#pragma omp simd"] if len(axes.sizes["n"]) <= 1 else []
    body = [
        *axes.split("b", "batch", "batch"),
        *axes.split("m", "row", "row"),
        *scopes[0].lines,
        *simd,
        "for (int64_t j = 0; j < count; ++j) {",
        *indent(inner),
        "}",
    ]
    batch = "int64_t batch" if axes.sizes["b"] else "int64_t"
    row = "int64_t row" if axes.sizes["m"] else "int64_t"
    first = "int64_t j0" if axes.sizes["n"] else "int64_t"
    return [
        f"[=]({batch}, {row}, {first}, int64_t count, const {kind}* sums) {{",
        *indent(_without_unused(body)),
        "});",
    ]
