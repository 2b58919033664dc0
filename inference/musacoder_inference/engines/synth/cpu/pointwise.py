"""Pointwise kernels: one loop nest, the innermost loop a vector loop."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from musacoder_inference.engines.synth.cpu.emit import PARALLEL_WORK, loop, work
from musacoder_inference.engines.synth.cpu.scopes import Names, Scope, ScopedPrinter
from musacoder_inference.engines.synth.fuse import Pointwise


def print_pointwise(kernel: Pointwise) -> tuple[list[str], bool]:
    """The body of the function, and whether it gathers (then `bad` must be declared)."""
    sizes = kernel.loops.outer
    rank = len(sizes)
    loops = [f"i{d}" for d in range(rank)] if rank > 1 else ["i"]
    printer = ScopedPrinter(loops, list(range(1, rank + 1)), Names())
    values = [s.value for s in kernel.stages]
    printer.count_uses(*values)
    scopes = [Scope(d) for d in range(rank + 1)]
    for stage in kernel.stages:
        text = printer.text(stage.value, scopes)
        scopes[-1].lines.append(printer.store(stage.target, text))
    parallel = work(prod(sizes), values) >= PARALLEL_WORK
    return _nest(scopes, loops, sizes, parallel, printer.gathers), printer.gathers


def _nest(
    scopes: Sequence[Scope],
    loops: Sequence[str],
    sizes: Sequence[int],
    parallel: bool,
    gathers: bool,
) -> list[str]:
    """Loops around the scopes; threads take the outermost loops, vectors the innermost."""
    rank = len(sizes)
    check = " reduction(|:bad)" if gathers else ""
    if rank == 1:
        pragma = (
            f"omp parallel for simd schedule(static){check}" if parallel else f"omp simd{check}"
        )
        return [*scopes[0].lines, *loop(loops[0], sizes[0], scopes[1].lines, pragma)]
    shared = 1
    while shared < rank - 1 and not scopes[shared].lines:
        shared += 1
    body = scopes[rank].lines
    for d in range(rank - 1, -1, -1):
        pragma = "" if d < rank - 1 else f"omp simd{check}"
        if d == 0 and parallel:
            collapse = f" collapse({shared})" if shared > 1 else ""
            pragma = f"omp parallel for{collapse} schedule(static){check}"
        body = [*scopes[d].lines, *loop(loops[d], sizes[d], body, pragma)]
    return body
