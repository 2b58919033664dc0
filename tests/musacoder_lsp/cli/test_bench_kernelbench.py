"""`musacoder bench kernelbench --run` and `bench agreement`, on a small data set of our own."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from musacoder_lsp.cli.bench import agreement, layout, lines, scores
from musacoder_lsp.cli.bench.layout import Recorded
from musacoder_lsp.cli.main import main
from musacoder_lsp.cli.options import Unusable

CACHE = Path(__file__).parents[3] / "build" / "test-cache"
PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8, 33)]
def get_init_inputs():
    return []
"""
KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <torch/extension.h>
torch::Tensor rectify(torch::Tensor x) {
  auto y = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = x.data_ptr<float>()[i];
    y.data_ptr<float>()[i] = v > 0.f ? v : 0.f;
  }
  return y;
}
"""
ext = load_inline(name="bench_relu", cpp_sources=SOURCE, functions=["rectify"])
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return BODY
'''
# By sample: what ModelNew.forward returns, and what the run recorded of it.
SAMPLES = {
    0: ("ext.rectify(x)", {"compiled": True, "correctness": True}),
    1: ("ext.rectify(x) + 5e-3", {"compiled": True, "correctness": True}),
    2: ("ext.rectify(x) + 1.0", {"compiled": True, "correctness": True}),
    3: (
        "ext.nothing(x)",
        {
            "compiled": True,
            "correctness": False,
            "metadata": {"runtime_error": "CUDA out of memory. Tried to allocate 8 GiB"},
        },
    ),
}


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one problem and one run; the compile cache is the verifier's tests'."""
    (tmp_path / "cache").mkdir()
    CACHE.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache" / "musacoder").symlink_to(CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "19_ReLU.py").write_text(PROBLEM)
    run = tmp_path / "runs" / "ours"
    run.mkdir(parents=True)
    for sample, (body, _) in SAMPLES.items():
        path = run / f"level_1_problem_19_sample_{sample}_kernel.py"
        path.write_text(KERNEL.replace("BODY", body))
    results = [{"sample_id": sample, **record} for sample, (_, record) in SAMPLES.items()]
    (run / "eval_results.json").write_text(json.dumps({"19": results}))
    return tmp_path


def test_a_run_is_verified_resumed_and_compared(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, run = dataset / "lines.jsonl", str(dataset / "runs" / "ours")
    command = [
        "bench", "kernelbench", str(dataset), "--run", run, "--like", "kernelbench", "--no-timing",
        "--tolerance", "0.01", "--lines", str(kept), "--results", str(dataset / "new.json"),
    ]  # fmt: skip
    assert main([*command, "--seconds", "0"]) == 1  # no time: nothing is begun
    assert "4 of 4 are left" in capsys.readouterr().out
    assert main([*command, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (row,) = report["results"]
    assert (row["candidates"], row["pass"], row["timed"]) == (4, 2, 0)
    first = kept.read_text()
    kept.write_text(first + '{"kind": "candidate", "cut')  # its writer was killed
    assert main(command) == 1
    assert kept.read_text().startswith(first) and len(kept.read_text().splitlines()) == 5
    ours = layout.recorded(dataset / "runs" / "ours")
    (dataset / "runs" / "ours" / "eval_results.json").write_text((dataset / "new.json").read_text())
    again = layout.recorded(dataset / "runs" / "ours")
    assert [again[19, sample].correctness for sample in range(4)] == [True, True, False, False]
    assert len(ours) == 4

    capsys.readouterr()
    (dataset / "runs" / "ours" / "eval_results.json").write_text(
        json.dumps({"19": [{"sample_id": s, **record} for s, (_, record) in SAMPLES.items()]})
    )
    command = ["bench", "agreement", "--run", run, "--lines", str(kept), "--json"]
    assert main(command) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["at"]["0.01"]["compared"] == 3 and told["at"]["0.01"]["agree"] == 2
    assert told["at"]["0.0001"]["agree"] == 1
    assert told["no_verdict"] == 1
    (found,) = told["disagreements"]
    assert found["sample"] == 2 and "differ by up to 1" in found["evidence"]
    # Two kernels are recorded as correct and compute with torch's own add besides.
    assert told["condemned"]["native-only"] == 2 and told["condemned"]["kernelbench"] == 0
    assert not any(told["accused"].values())

    ruling = dataset / "rulings.toml"
    text = """
    [[adjudication]]
    run = "ours"
    level = 1
    problem = 19
    sample = 2
    recorded = "correct"
    ours = "wrong"
    right = "ours"
    words = "Off by one everywhere."
    """
    ruling.write_text(textwrap.dedent(text))
    assert main([*command, "--adjudications", str(ruling)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["at"]["0.01"]["adjudicated"] == 3 and not told["unsettled"]
    # A ruling about another outcome settles nothing.
    ruling.write_text(textwrap.dedent(text).replace('ours = "wrong"', 'ours = "correct"'))
    assert main([*command, "--adjudications", str(ruling)]) == 1


def test_both_layouts_of_recorded_results(tmp_path: Path) -> None:
    bare = {"compiled": False, "correctness": False, "metadata": {"compilation_error": "no"}}
    (tmp_path / "eval_results.json").write_text(
        json.dumps({"1": bare, "2": [{"sample_id": 3, **bare, "compiled": True}]})
    )
    found = layout.recorded(tmp_path)
    assert {key: record.outcome for key, record in found.items()} == {
        (1, 0): "not compiled",
        (2, 3): "wrong",
    }
    (tmp_path / "eval_results.json").write_text('{"1": [3]}')
    with pytest.raises(Unusable, match="eval_results"):
        layout.recorded(tmp_path)
    with pytest.raises(Unusable, match="sample_S_kernel"):
        layout.candidates(tmp_path)
    assert layout.recorded(tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("CUDA error: no kernel image is available for execution on the device", "no verdict"),
        ("an illegal memory access was encountered", "wrong"),
        ("the block size is too large", "wrong"),
    ],
)
def test_a_fault_of_the_recording_machine_is_no_verdict(said: str, outcome: str) -> None:
    assert Recorded(True, False, {"runtime_error": said}).outcome == outcome


def test_lines_of_another_version_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines.jsonl"
    lines.append(path, "candidate", "card", {"value": 1})
    monkeypatch.setattr(lines, "verifier_version", lambda: "next")
    lines.append(path, "candidate", "card", {"value": 2})
    lines.append(path, "compile", "card", {"value": 3})
    assert [line["value"] for line in lines.read([path], "candidate")] == [2]


def test_scores_are_kernelbenchs() -> None:
    speedups = [None, 0.5, 1.0, 3.0]
    assert scores.fast(speedups, 0.0) == 0.75
    assert scores.fast(speedups, 1.0) == 0.25  # strictly faster, of all samples
    assert scores.fast([], 1.0) is None
    assert scores.geomean([0.5, 2.0]) == pytest.approx(1.0)


def test_kinds_of_agreement_know_what_a_verdict_says_at_another_tolerance() -> None:
    likened = {"planned": 5, "done": 5, "passed": {"0.01": 5, "0.0001": 3}}
    verdict = {"status": "wrong_result", "correctness": {"kernelbench": likened}}
    assert agreement.outcome(verdict, 1e-2) == "correct"
    assert agreement.outcome(verdict, 1e-4) == "wrong"
    assert agreement.outcome({"status": "compile_error", "correctness": None}, 1e-2) == (
        "not compiled"
    )
    assert agreement.outcome({"status": "infra_error", "correctness": None}, 1e-2) == "no verdict"
