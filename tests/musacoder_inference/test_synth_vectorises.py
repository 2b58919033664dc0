"""Loops over the special functions that synth writes are vectorised by the compiler: a scalar loop
costs ten times as much, and looks the same in the source."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from musacoder_inference.engines.synth.cpu.prelude import pieces_for
from musacoder_inference.engines.synth.write import CPU_FLAGS

FUNCTIONS = (
    "exponential", "exponential_minus_1", "logarithm", "logarithm_1_plus", "sigmoid",
    "hyperbolic_tangent", "error_function", "gelu", "gelu_tanh",
)  # fmt: skip
# What one function knows of its argument changes what the compiler makes of another.
COMPOSED = (
    "logarithm_1_plus(exponential(v))",  # softplus
    "v * hyperbolic_tangent(logarithm_1_plus(exponential(v)))",  # mish
    "v > 20.0f ? v : logarithm_1_plus(exponential(v))",
    "v > 0.0f ? v : exponential_minus_1(v)",  # elu
    "logarithm(sigmoid(v))",
    "sigmoid(gelu(v))",
)
_HEADERS = "#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <limits>\n"


def test_loops_vectorise(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed; other compilers report vectorised loops otherwise")
    values = [*(f"{name}(v)" for name in FUNCTIONS), *COMPOSED]
    loops = [
        f"void k{at}(const float* __restrict__ a, float* __restrict__ o) {{\n#pragma omp simd\n"
        f"  for (int64_t i = 0; i < 4096; ++i) {{ const float v = a[i]; o[i] = {value}; }}\n}}"
        for at, value in enumerate(values)
    ]
    text = "\n".join(loops)
    source = tmp_path / "loops.cpp"
    source.write_text(f"{_HEADERS}{pieces_for(text)}\n{text}\n")
    done = subprocess.run(
        [compiler, "-std=c++17", *CPU_FLAGS, "-c", str(source), "-o", str(tmp_path / "o"),
         "-fopt-info-vec-optimized"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    vectorised = {
        int(found[1]) for found in re.finditer(r":(\d+):\d+: optimized: loop vec", done.stderr)
    }
    lines = source.read_text().splitlines()
    at = {line.split("(")[0]: number + 2 for number, line in enumerate(lines, 1)}
    scalar = [value for n, value in enumerate(values) if at[f"void k{n}"] not in vectorised]
    assert scalar == []
