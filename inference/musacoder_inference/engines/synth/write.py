"""The pure function behind the engine: graph and Reference in, Candidate text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from musacoder_inference.engines.base import BackendName
from musacoder_inference.engines.synth.cpu.source import ENTRY, print_source
from musacoder_inference.engines.synth.cuda.dialect import CUDA, MUSA, Dialect
from musacoder_inference.engines.synth.cuda.native import LOADER, load_native
from musacoder_inference.engines.synth.cuda.source import declaration
from musacoder_inference.engines.synth.cuda.source import print_source as device_source
from musacoder_inference.engines.synth.from_graph import read_graph
from musacoder_inference.engines.synth.fuse import fuse
from musacoder_inference.engines.synth.ir import NotCovered
from musacoder_inference.engines.synth.module import wrap

Form = Literal["load_inline", "native"]
_NAMES = {"cpu": "C++", "cuda": "CUDA", "musa": "MUSA"}


def write(
    reference: str, graph: Mapping[str, Any], backend: BackendName, form: Form = "load_inline"
) -> str:
    """The module with `class ModelNew`; raises NotCovered with one line for the user. `form` is
    how kernels for the backend `cuda` are compiled; other backends have one form only."""
    if backend not in _NAMES:
        raise NotCovered(f"backend {backend} is not covered by synth")
    program, described = read_graph(graph)
    if backend == "cpu":
        load = _load_cpu(print_source(program, fuse(program)))
        return wrap(reference, graph, program, described, load, _NAMES[backend])
    if backend == "cuda" and form == "native":
        text = load_native(program)
        return wrap(reference, graph, program, described, text, _NAMES[backend], LOADER)
    dialect = CUDA if backend == "cuda" else MUSA
    load = _load_device(device_source(program, dialect), dialect)
    return wrap(reference, graph, program, described, load, _NAMES[backend], dialect.loader)


def _load_device(source: str, dialect: Dialect) -> str:
    return f'''_source = r"""
{source}"""

_kernels = load_inline(
    name="synth_kernels",
    cpp_sources="{declaration(source)}",
    {dialect.argument}=_source,
    functions=["{ENTRY}"],
{dialect.options})'''


CPU_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-trapping-math", "-fno-math-errno")


def _load_cpu(source: str) -> str:
    flags = ", ".join(f'"{flag}"' for flag in CPU_FLAGS)
    return f'''_source = r"""
{source}"""

_kernels = load_inline(
    name="synth_kernels",
    cpp_sources=_source,
    functions=["{ENTRY}"],
    # The last two change no value: they let loops with comparisons and square roots become vectors.
    extra_cflags=[{flags}],
    extra_ldflags=["-fopenmp"],
)'''
