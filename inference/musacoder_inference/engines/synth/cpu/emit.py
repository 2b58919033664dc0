"""Small pieces of C++ text that all CPU printers share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from musacoder_inference.engines.synth.cpu.scopes import indent
from musacoder_inference.engines.synth.dtypes import STORAGE_TYPE
from musacoder_inference.engines.synth.ir import Buffer, Expr, Op, walk
from musacoder_inference.engines.synth.operations import COSTLY

# Element operations below which starting threads costs more than it saves.
PARALLEL_WORK = 1 << 15


def loop(name: str, size: int | str, body: Sequence[str], pragma: str = "") -> list[str]:
    head = [f"#pragma {pragma}"] if pragma else []
    start = f"for (int64_t {name} = 0; {name} < {size}; ++{name}) {{"
    return [*head, start, *indent(body), "}"]


def work(elements: int, values: Iterable[Expr]) -> int:
    """A rough count of operations, to decide on threads."""
    costly = sum(isinstance(e, Op) and e.name in COSTLY for e in walk(*values))
    return elements * (1 + 4 * costly)


def signature(name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> list[str]:
    """The head of a kernel function, one parameter a line where they are many."""
    parameters = [f"const {STORAGE_TYPE[b.dtype]}* __restrict__ {b.name}" for b in inputs]
    parameters += [f"{STORAGE_TYPE[b.dtype]}* __restrict__ {b.name}" for b in outputs]
    line = f"static void {name}({', '.join(parameters)}) {{"
    if len(line) <= 100:
        return [line]
    return [
        f"static void {name}(",
        *[f"    {p}," for p in parameters[:-1]],
        f"    {parameters[-1]}) {{",
    ]


def product(sizes: Sequence[int]) -> int:
    return prod(sizes)
