"""Stripping PyTorch from CUDA sources, and tables that come from data alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from musacoder_verifier.content_key import verifier_version

from musacoder_lsp.cli.bench import evaluators, lines, report
from musacoder_lsp.cli.bench.misbehaviours import KINDS, candidate
from musacoder_lsp.cli.bench.plain_cuda import pieces, strip
from musacoder_lsp.cli.main import main

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include "ATen/cuda/CUDAContext.h"
#define TILE \
  16
// __global__ void not_a_kernel() {}
const char* brace = "{";
namespace {
struct Pair { float a; float b; };
__device__ float twice(float x) { return x + x; }
template <typename scalar_t, int N>
__global__ void __launch_bounds__(256) kernel(const scalar_t* x, scalar_t* y) {
  if (x) { y[0] = twice(x[N]); }
}
}  // namespace
__global__ void with_accessor(torch::PackedTensorAccessor32<float, 1> x) { x[0] = 1; }
extern "C" __global__ void plain(float* y) { y[0] = TILE; }
torch::Tensor launch(torch::Tensor x) {
  plain<<<1, 1>>>(x.data_ptr<float>());
  return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""


def test_only_device_code_is_kept() -> None:
    stripped = strip(SOURCE)
    assert stripped.kernels == ("kernel", "plain")
    assert stripped.lost == ("with_accessor",)
    assert "#include <cuda_runtime.h>" in stripped.text and "#define TILE \\\n  16" in stripped.text
    assert "struct Pair" in stripped.text and "twice" in stripped.text
    assert "(void*)&kernel<float, 32>;" in stripped.text
    for word in ("torch", "ATen", "PYBIND11", "launch(", "not_a_kernel"):
        assert word not in stripped.text


def test_pieces_are_whole_declarations() -> None:
    text = "int a[] = {1, 2};\nstruct S { int x; } s;\nvoid f() { if (1) { } }\nint b;"
    assert pieces(text) == [
        "int a[] = {1, 2};", "struct S { int x; } s;", "void f() { if (1) { } }", "int b;",
    ]  # fmt: skip


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_misbehaving_candidates_are_python(backend: str) -> None:
    assert len(KINDS) == 20
    for body in KINDS.values():
        compile(candidate(body, backend), "candidate", "exec")


def test_a_document_is_filled_from_lines_of_this_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, document = tmp_path / "lines.jsonl", tmp_path / "document.md"
    place = "<!-- measured: faults -->\nold\n<!-- end -->\n"
    document.write_text(f"# Title\n\n{place}\nText.\n")
    body = {
        "misbehaviour": "abort", "status": "runtime_error", "honest_unchanged": True,
        "recovery_seconds": 0.5,
    }  # fmt: skip
    monkeypatch.setattr(lines, "verifier_version", lambda: "old")
    lines.append(kept, "fault", "card", body)
    monkeypatch.undo()
    assert main(["bench", "report", str(kept), "--write", str(document)]) == 0
    assert report.NOTHING in document.read_text() and "old\n" not in document.read_text()
    assert main(["bench", "report", str(kept), "--verifier", "old", "--write", str(document)]) == 0
    assert "| abort | 1 |" in document.read_text() and "verifier old." in document.read_text()
    lines.append(kept, "fault", "card", body)
    assert main(["bench", "report", str(kept), "--write", str(document)]) == 0
    text = document.read_text()
    assert "| abort | 1 | runtime_error 1 | 0 | 0.5 |" in text
    assert f"verifier {verifier_version()}" in text and text.endswith("Text.\n")
    document.write_text(place.replace("faults", "nothing"))
    assert main(["bench", "report", str(kept), "--write", str(document)]) == 2


def test_every_place_of_the_document_has_a_section(tmp_path: Path) -> None:
    kept, copy = tmp_path / "lines.jsonl", tmp_path / "verification.md"
    kept.write_text("")
    original = Path(__file__).parents[3] / "docs" / "verification.md"
    copy.write_text(original.read_text())
    assert main(["bench", "report", str(kept), "--write", str(copy)]) == 0
    assert copy.read_text().count("<!-- measured:") == 7


def test_ratios_are_of_medians_over_candidates_that_have_both() -> None:
    figures = (
        {"ours": 1.0, "plain nvcc": 0.5, "stock": 50.0},
        {"ours": 2.0, "plain nvcc": None, "stock": 60.0},
        {"ours": 3.0, "plain nvcc": 1.5, "stock": 70.0},
    )
    table = evaluators.summary([{"figures": item} for item in figures])
    ratios = {row["name"]: (row["ratio"], row["of"]) for row in table if "ratio" in row}
    assert ratios == {"stock / ours": (30.0, 3), "ours / plain nvcc": (2.0, 2)}
