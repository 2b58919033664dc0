"""The whole CUDA or MUSA source of a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from musacoder_inference.engines.synth.copies import (
    buffers_read,
    eliminate_copies,
)
from musacoder_inference.engines.synth.cpu.prelude import pieces_for
from musacoder_inference.engines.synth.cpu.scopes import indent
from musacoder_inference.engines.synth.cpu.source import ENTRY, print_entry
from musacoder_inference.engines.synth.cuda.dialect import Dialect
from musacoder_inference.engines.synth.cuda.kernels import Launch, print_stage
from musacoder_inference.engines.synth.dtypes import STORAGE_TYPE
from musacoder_inference.engines.synth.ir import Buffer, Matmul, NotCovered, Program, Stage

# The device has these in its own library; the CPU's versions are for vector loops.
_DEVICE_MATHS = {
    "exponential": "exp", "exponential_minus_1": "expm1", "logarithm": "log",
    "logarithm_1_plus": "log1p", "hyperbolic_tangent": "tanh", "error_function": "erf",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """One kernel. `buffers` are its parameters in order, the one that it writes last."""

    name: str
    buffers: tuple[Buffer, ...]
    launch: Launch

    def text(self, linkage: str = "") -> str:
        *inputs, out = self.buffers
        parameters = [f"const {STORAGE_TYPE[b.dtype]}* __restrict__ {b.name}" for b in inputs]
        parameters.append(f"{STORAGE_TYPE[out.dtype]}* __restrict__ {out.name}")
        head = [f"{linkage}__global__ void {self.name}(", *[f"    {p}," for p in parameters[:-1]]]
        body = indent(self.launch.body)
        return "\n".join([*head, f"    {parameters[-1]}) {{", *body, "}"])


def print_kernels(program: Program) -> list[PrintedKernel]:
    """One kernel per stage, in the order of their launches."""
    if not program.arguments:
        raise NotCovered("a function without tensor inputs is not covered by synth")
    eliminate_copies(program)
    kernels = []
    for position, stage in enumerate(program.stages):
        if prod(_result_shape(stage)) == 0:
            continue
        name = f"{type(stage).__name__.lower()}_{position}"
        launch = print_stage(stage)
        accumulator = stage.accumulator if isinstance(stage, Matmul) else None
        read = sorted(buffers_read(stage) - {accumulator}, key=lambda b: b.name)
        inputs = [b for b in read if b != stage.target.buffer]
        kernels.append(PrintedKernel(name, (*inputs, stage.target.buffer), launch))
    return kernels


def print_source(program: Program, dialect: Dialect) -> str:
    """One kernel per stage, launched in order on the current stream."""
    kernels = print_kernels(program)
    calls = []
    for kernel in kernels:
        arguments = [f"{b.name}.data_ptr<{STORAGE_TYPE[b.dtype]}>()" for b in kernel.buffers]
        grid, block = _dim3(kernel.launch.grid), _dim3(kernel.launch.block)
        calls += [
            f"{kernel.name}<<<{grid}, {block}, 0, {dialect.stream}>>>(",
            f"    {', '.join(arguments)});",
            dialect.launch_check,
        ]
    prelude, code = device_code(kernels)
    written: set[Buffer] = {s.target.buffer for s in program.stages}
    includes = "\n".join(f"#include {i}" for i in dialect.includes)
    standard = "#include <cmath>\n#include <cstdint>\n#include <limits>\n#include <vector>"
    entry = print_entry(program, written, calls)
    parts = [includes, standard, prelude, code, entry]
    return "\n\n".join(part for part in parts if part) + "\n"


def device_code(kernels: Sequence[PrintedKernel], linkage: str = "") -> tuple[str, str]:
    """What the kernels need before them, and the kernels."""
    code = _device_maths("\n\n".join(kernel.text(linkage) for kernel in kernels))
    return _on_device(pieces_for(code)), code


def _dim3(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"dim3({', '.join(map(str, sizes))})"


def declaration(source: str) -> str:
    """The prototype of the entry, which `load_inline` needs to bind it."""
    found = re.search(
        rf"^(?:torch::Tensor|std::vector<torch::Tensor>) {ENTRY}\([^)]*\)", source, re.M
    )
    assert found is not None
    return found[0] + ";"


def _result_shape(stage: Stage) -> tuple[int, ...]:
    if isinstance(stage, Matmul):
        return (*stage.batch, *stage.m, *stage.n)
    dims = getattr(stage, "dims", ())
    return tuple(n for d, n in enumerate(stage.shape) if d not in dims)


def _device_maths(code: str) -> str:
    for ours, theirs in _DEVICE_MATHS.items():
        code = re.sub(rf"\b{ours}\(", f"{theirs}(", code)
    return code


def _on_device(prelude: str) -> str:
    """The shared pieces as device functions; a wrong index stops the kernel."""
    prelude = _device_maths(prelude)
    prelude = re.sub(r"// exp without.*?\n(?=\n|$)", "", prelude, flags=re.S)
    prelude = prelude.replace("static inline", "static __device__ __forceinline__")
    prelude = prelude.replace("  bad |= wrong;\n", "  if (wrong) __trap();\n")
    return prelude.replace("std::exp(", "exp(")
