"""The whole C++ source of a program: includes, prelude, one function per kernel, one entry."""

from __future__ import annotations

from collections.abc import Sequence

from musacoder_inference.engines.synth.cpu.emit import signature
from musacoder_inference.engines.synth.cpu.matmul import print_matmul
from musacoder_inference.engines.synth.cpu.pointwise import print_pointwise
from musacoder_inference.engines.synth.cpu.prelude import pieces_for
from musacoder_inference.engines.synth.cpu.rows import print_rows
from musacoder_inference.engines.synth.cpu.scopes import indent
from musacoder_inference.engines.synth.cpu.split import print_split
from musacoder_inference.engines.synth.dtypes import STORAGE_TYPE, TORCH_CONSTANT
from musacoder_inference.engines.synth.fuse import Kernel, Pointwise, Rows, Split
from musacoder_inference.engines.synth.ir import (
    Buffer,
    Expr,
    Gather,
    Load,
    Matmul,
    NotCovered,
    Program,
    leaves,
)

ENTRY = "forward"
_HEADERS = {
    "std::vector": "vector", "std::min": "algorithm", "std::fill": "algorithm",
    "std::memcpy": "cstring",
    "std::numeric_limits": "limits", "std::is_": "type_traits", "omp_": "omp.h",
    "std::sqrt": "cmath",
    "std::exp": "cmath", "std::abs": "cmath", "std::": "cmath", "int64_t": "cstdint",
}  # fmt: skip


def print_source(program: Program, kernels: Sequence[Kernel]) -> str:
    """C++17 with OpenMP; raises NotCovered where a kernel has no printer."""
    if not program.arguments:
        raise NotCovered("a function without tensor inputs is not covered by synth")
    functions, calls = [], []
    written: set[Buffer] = set()
    for position, kernel in enumerate(kernels):
        name, body, gathers = _print_kernel(kernel, position)
        inputs, outputs = kernel_buffers(kernel)
        written.update(outputs)
        if gathers:
            body = ["int bad = 0;", *body, 'TORCH_CHECK(!bad, "an index is out of range");']
        functions.append("\n".join([*signature(name, inputs, outputs), *indent(body), "}"]))
        arguments = [f"{b.name}.data_ptr<{STORAGE_TYPE[b.dtype]}>()" for b in (*inputs, *outputs)]
        calls += _call(name, arguments)
    entry = print_entry(program, written, calls)
    code = "\n\n".join([*functions, entry])
    prelude = pieces_for(code)
    whole = f"{prelude}\n\n{code}" if prelude else code
    return f"{_includes(whole)}\n\n{whole}\n"


def _includes(body: str) -> str:
    headers = {header for mark, header in _HEADERS.items() if mark in body}
    return "\n".join(
        ["#include <torch/extension.h>", "", *(f"#include <{h}>" for h in sorted(headers))]
    )


def _print_kernel(kernel: Kernel, position: int) -> tuple[str, list[str], bool]:
    if isinstance(kernel, Pointwise):
        return (f"pointwise_{position}", *print_pointwise(kernel))
    if isinstance(kernel, Rows):
        return (f"rows_{position}", *print_rows(kernel))
    if isinstance(kernel, Split):
        return (f"reduce_{position}", *print_split(kernel))
    return (f"matmul_{position}", *print_matmul(kernel))


def kernel_values(kernel: Kernel) -> list[Expr]:
    if isinstance(kernel, Matmul):
        return [
            kernel.left,
            kernel.right,
            *([kernel.epilogue] if kernel.epilogue is not None else []),
        ]
    return [s.value for s in kernel.stages]


def kernel_buffers(kernel: Kernel) -> tuple[list[Buffer], list[Buffer]]:
    """Buffers that a kernel reads and writes, each once, in order of appearance."""
    accumulator = kernel.accumulator if isinstance(kernel, Matmul) else None
    local = kernel.local if isinstance(kernel, Rows) else frozenset()
    stages = [kernel] if isinstance(kernel, Matmul) else list(kernel.stages)
    outputs = dict.fromkeys(s.target.buffer for s in stages if s.target.buffer not in local)
    read = dict.fromkeys(
        leaf.buffer
        for leaf in leaves(*kernel_values(kernel))
        if isinstance(leaf, Load | Gather)
        and leaf.buffer not in local
        and leaf.buffer != accumulator
    )
    return [b for b in read if b not in outputs], list(outputs)


def _call(name: str, arguments: Sequence[str]) -> list[str]:
    line = f"{name}({', '.join(arguments)});"
    if len(line) <= 98:
        return [line]
    return [f"{name}(", *[f"    {a}," for a in arguments[:-1]], f"    {arguments[-1]});"]


def _shape(buffer: Buffer) -> str:
    return "{" + ", ".join(map(str, buffer.shape)) + "}"


def print_entry(program: Program, written: set[Buffer], calls: Sequence[str]) -> str:
    """The function that Python calls: checks, memory, kernels in order."""
    arguments = [a.buffer for a in program.arguments]
    several = len(program.results) != 1
    returned = "std::vector<torch::Tensor>" if several else "torch::Tensor"
    parameters = [f"const torch::Tensor& {b.name}" for b in arguments]
    line = f"{returned} {ENTRY}({', '.join(parameters)}) {{"
    head = [line]
    if len(line) > 100:
        head = [
            f"{returned} {ENTRY}(",
            *[f"    {p}," for p in parameters[:-1]],
            f"    {parameters[-1]}) {{",
        ]
    lines = [
        f'check({b.name}, "{b.name}", {TORCH_CONSTANT[b.dtype]}, {_shape(b)});' for b in arguments
    ]
    results = list(program.results)
    scratch = [b for b in written if b not in results and b.role == "scratch"]
    for buffer in [*sorted(scratch, key=lambda b: b.name), *results]:
        lines.append(_allocate(buffer, arguments[0]))
    names = [b.name for b in results]
    lines += [*calls, f"return {{{', '.join(names)}}};" if several else f"return {names[0]};"]
    return "\n".join([_CHECK, "", *head, *indent(lines), "}"])


def _allocate(buffer: Buffer, like: Buffer) -> str:
    options = f"{like.name}.options()"
    if buffer.dtype != like.dtype:
        options += f".dtype({TORCH_CONSTANT[buffer.dtype]})"
    return f"torch::Tensor {buffer.name} = torch::empty({_shape(buffer)}, {options});"


_CHECK = """\
// This source is written for one set of shapes; another one is refused, not computed wrongly.
static void check(
    const torch::Tensor& x, const char* name, torch::ScalarType dtype, std::vector<int64_t> shape) {
  TORCH_CHECK(x.scalar_type() == dtype, name, " has another dtype than this kernel is written for");
  TORCH_CHECK(x.sizes().vec() == shape, name, " has another shape than this kernel is written for");
  TORCH_CHECK(x.is_contiguous(), name, " must be contiguous");
}"""
