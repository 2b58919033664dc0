"""A program in the native form: kernels for NVRTC, and their launches as a description.

NVRTC knows no header of the C++ library, and reading one would take longer than all the rest; what
the kernels need of it stands here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from musacoder_inference.engines.synth.cpu.source import ENTRY
from musacoder_inference.engines.synth.cuda.source import (
    PrintedKernel,
    device_code,
    print_kernels,
)
from musacoder_inference.engines.synth.ir import Buffer, Program

LOADER = "from musacoder_native import Function, Launch, load_native"
_INTEGERS = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short", "int32_t": "int",
    "int64_t": "long long", "uint64_t": "unsigned long long",
}  # fmt: skip
_HALVES = {
    "at::Half": ("__half", "#include <cuda_fp16.h>"),
    "at::BFloat16": ("__nv_bfloat16", "#include <cuda_bf16.h>"),
}
_LIMITS = """\
template <typename T>
struct numeric_limits {  // of whole numbers
  static constexpr bool is_signed = T(-1) < T(0);
  static __device__ T min() { return is_signed ? T(1ull << (8 * sizeof(T) - 1)) : T(0); }
  static __device__ T lowest() { return min(); }
  static __device__ T max() { return T(~min()); }
};
template <>
struct numeric_limits<float> {
  static __device__ float infinity() { return __int_as_float(0x7f800000); }
  static __device__ float quiet_NaN() { return __int_as_float(0x7fc00000); }
};
template <>
struct numeric_limits<double> {
  static __device__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
  static __device__ double quiet_NaN() { return __longlong_as_double(0x7ff8000000000000ll); }
};"""
_IS_FLOAT = """\
template <typename T>
constexpr bool is_floating_point_v = T(1) / T(2) != T(0);"""


def load_native(program: Program) -> str:
    """The Python text that compiles the kernels of a program and binds them to `_kernels`."""
    kernels = print_kernels(program)
    return f'''_source = r"""
{_source(kernels)}"""

_kernels = load_native(
    name="synth_kernels",
    source=_source,
    functions={{
        "{ENTRY}": Function(
{_described(program, kernels)}
        )
    }},
)'''


def _source(kernels: Sequence[PrintedKernel]) -> str:
    prelude, code = device_code(kernels, 'extern "C" ')
    text = f"{prelude}\n\n{code}" if prelude else code
    text = text.replace("std::", "")  # the mathematics stands in no namespace here
    head = []
    for ours, (theirs, include) in _HALVES.items():
        if ours in text:
            text = text.replace(ours, theirs)
            head.append(include)
    pieces = [
        piece
        for name, piece in (("numeric_limits", _LIMITS), ("is_floating_point_v", _IS_FLOAT))
        if name in text
    ]
    whole = "\n\n".join([*pieces, text])
    head += [f"typedef {c} {n};" for n, c in _INTEGERS.items() if re.search(rf"\b{n}\b", whole)]
    return "\n".join([*head, "", whole, ""])


def _described(program: Program, kernels: Sequence[PrintedKernel]) -> str:
    results = list(program.results)
    used = dict.fromkeys(buffer for kernel in kernels for buffer in kernel.buffers)
    scratch = [b for b in used if b.role == "scratch" and b not in results]
    lists = {
        "args": [_tensor(argument.buffer) for argument in program.arguments],
        "scratch": [_tensor(buffer) for buffer in scratch],
        "outputs": [_tensor(buffer) for buffer in results],
    }
    lines = []
    for name, entries in lists.items():
        if entries:
            lines += [f"{name}=[", *(f'    "{entry}",' for entry in entries), "],"]
    lines.append("launches=[")
    for kernel in kernels:
        names = ", ".join(f'"{buffer.name}"' for buffer in kernel.buffers)
        sizes = f"grid={kernel.launch.grid}, block={kernel.launch.block}"
        lines.append(f'    Launch("{kernel.name}", args=[{names}], {sizes}),')
    return "\n".join(" " * 12 + line for line in [*lines, "],"])


def _tensor(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
