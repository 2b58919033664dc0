"""Compiles sources written by synth in batches and calls them on torch tensors."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from musacoder_inference.engines.synth.cpu.source import print_source
from musacoder_inference.engines.synth.from_graph import read_graph
from musacoder_inference.engines.synth.fuse import fuse
from musacoder_inference.engines.synth.ir import Program
from musacoder_runtime.children.export import export

STUB = Path(__file__).parent / "stub"
FLAGS = (
    "-std=c++17",
    "-O2",
    "-march=native",
    "-fopenmp",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wno-unused-function",
    "-Werror",
)
_TYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "bool",
)


class _Plain(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Written:
    """One source and what is needed to call it as `model(*inputs)` would be."""

    name: str
    source: str
    program: Program
    described: list[tuple[str, str | None]]
    graph: Mapping[str, Any]


def write_source(
    name: str, model: torch.nn.Module, inputs: Sequence[Any], training: bool = False
) -> Written:
    graph = export(model, list(inputs), training=training)
    program, described = read_graph(graph)
    return Written(name, print_source(program, fuse(program)), program, described, graph)


def compile_batch(batch: Sequence[Written], folder: Path) -> ctypes.CDLL:
    """One shared library with every source in a namespace of its own."""
    headers, bodies = set(), []
    for item in batch:
        lines = item.source.splitlines()
        headers |= {line for line in lines if line.startswith("#include")}
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        arguments = ", ".join(f"stub::borrow(in[{i}])" for i in range(len(item.program.arguments)))
        bodies.append(
            f"namespace case_{item.name} {{\n{body}\n}}\n"
            f'extern "C" const char* call_{item.name}('
            "const stub::Plain* in, const stub::Plain* out) {\n"
            "  return stub::guarded([&] { return "
            f"case_{item.name}::forward({arguments}); }}, out);\n}}\n"
        )
    text = "\n".join([*sorted(headers), *bodies])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    source, library = folder / f"batch_{digest}.cpp", folder / f"batch_{digest}.so"
    source.write_text(text)
    command = ["g++", *FLAGS, f"-I{STUB}", str(source), "-o", str(library)]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise AssertionError(done.stderr[:6000])
    return ctypes.CDLL(str(library))


def call(
    library: ctypes.CDLL, item: Written, model: torch.nn.Module, inputs: Sequence[Any]
) -> list[torch.Tensor]:
    """What the kernel returns for the inputs, in the order of `item.described`."""
    prepared = prepare(item, model, inputs)
    run(library, item, prepared)
    return prepared[1]


def prepare(item: Written, model: torch.nn.Module, inputs: Sequence[Any]) -> Any:
    flat = torch.utils._pytree.tree_leaves(tuple(inputs))
    by_name = {e["name"]: flat[e["position"]] for e in item.graph["inputs"] if e["kind"] == "input"}
    given = []
    for argument in item.program.arguments:
        value = by_name.get(argument.source)
        if value is None:
            value = eval(argument.source, {"self": model})
        given.append(value.detach().contiguous())
    results = [torch.empty(b.shape, dtype=getattr(torch, b.dtype)) for b in item.program.results]
    return given, results


def run(library: ctypes.CDLL, item: Written, prepared: Any) -> None:
    given, results = prepared
    function = getattr(library, f"call_{item.name}")
    function.restype = ctypes.c_char_p
    keep: list[Any] = []
    message = function(_plain(given, keep), _plain(results, keep))
    if message is not None:
        raise RuntimeError(message.decode())


def _plain(tensors: Sequence[torch.Tensor], keep: list[Any]) -> Any:
    array = (_Plain * max(len(tensors), 1))()
    for slot, tensor in zip(array, tensors, strict=False):
        shape = (ctypes.c_int64 * max(tensor.dim(), 1))(*tensor.shape)
        keep.append(shape)
        slot.type = _TYPES.index(str(tensor.dtype).replace("torch.", ""))
        slot.rank = tensor.dim()
        slot.shape = shape
        slot.data = tensor.data_ptr()
    keep.append(array)
    return array
