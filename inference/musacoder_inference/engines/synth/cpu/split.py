"""Reductions of few, long rows: each thread reduces parts, the parts are joined in order, so that
the result does not depend on the number of threads."""

from __future__ import annotations

from math import prod

from musacoder_inference.engines.synth.cpu.emit import loop
from musacoder_inference.engines.synth.cpu.row_pass import BLOCK, RowPass, worst
from musacoder_inference.engines.synth.cpu.scopes import Names, Scope, ScopedPrinter
from musacoder_inference.engines.synth.dtypes import COMPUTE_TYPE
from musacoder_inference.engines.synth.fuse import Split
from musacoder_inference.engines.synth.ir import Reduce

_PARTS = 64


def print_split(kernel: Split) -> tuple[list[str], bool]:
    """The body of the function, and whether it gathers."""
    loops = kernel.loops
    outer = len(loops.outer)
    rank = loops.rank
    names = [f"i{d}" for d in range(outer)] + [f"r{d}" for d in range(rank - outer)]
    if rank - outer == 1:
        names[-1] = "r"
    longest = max(range(len(loops.inner)), key=lambda d: loops.inner[d])
    length = loops.inner[longest]
    part = -(-length // _PARTS)
    if longest == len(loops.inner) - 1:
        part = -(-part // BLOCK) * BLOCK
    parts = -(-length // part)
    printer = ScopedPrinter(names, [d + 1 for d in range(rank)], Names())
    printer.count_uses(*(s.value for s in kernel.stages))
    scopes = [Scope(d) for d in range(outer + 1)]
    unstored = frozenset(s.target.buffer for s in kernel.stages)
    bounds = {longest: ("begin", "end")}
    lines = RowPass(printer, loops, scopes, unstored, bounds).lines(kernel.stages)
    hoisted = [line for scope in scopes for line in scope.lines]
    body = [
        f"const int64_t begin = part * {part};",
        f"const int64_t end = std::min<int64_t>(begin + {part}, {length});",
        *hoisted,
        *lines,
        *(
            f"part_{s.target.buffer.name}[part] = row_{s.target.buffer.name};"
            for s in kernel.stages
        ),
    ]
    check = " reduction(|:bad)" if printer.gathers else ""
    threads = prod(loops.shape) >= BLOCK
    pragma = f"omp parallel for schedule(static){check}" if threads else ""
    declared = [
        f"{COMPUTE_TYPE[s.target.buffer.dtype]} part_{s.target.buffer.name}[{parts}];"
        for s in kernel.stages
    ]
    joined = [line for s in kernel.stages for line in _join(s, parts, printer)]
    result = [*declared, *loop("part", parts, body, pragma), *joined]
    for d in range(outer - 1, -1, -1):
        result = loop(names[d], loops.outer[d], result)
    return result, printer.gathers


def _join(stage: Reduce, parts: int, printer: ScopedPrinter) -> list[str]:
    buffer = stage.target.buffer
    kind = COMPUTE_TYPE[buffer.dtype]
    total, part = f"total_{buffer.name}", f"part_{buffer.name}[part]"
    if stage.kind in ("sum", "prod"):
        wide = "double" if kind in ("float", "double") else kind
        head = f"{wide} {total} = {0 if stage.kind == 'sum' else 1};"
        step = f"{total} {'+' if stage.kind == 'sum' else '*'}= {part};"
        value = f"static_cast<{kind}>({total})"
    elif stage.kind in ("any", "all"):
        head = f"bool {total} = {'false' if stage.kind == 'any' else 'true'};"
        step, value = f"{total} = {total} {'||' if stage.kind == 'any' else '&&'} {part};", total
    else:
        head = f"{kind} {total} = {worst(stage.kind == 'max', kind)};"
        better = f"{part} {'>' if stage.kind == 'max' else '<'} {total}"
        step, value = f"if ({better} || {part} != {part}) {total} = {part};", total
    return [head, *loop("part", parts, [step]), printer.store(stage.target, value)]
