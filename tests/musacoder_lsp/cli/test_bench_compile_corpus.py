"""`musacoder bench compile --corpus`: what is drawn, what a record says, what is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musacoder_lsp.cli.bench import compile_corpus
from musacoder_lsp.cli.options import Unusable

CRASHED = {"cuda_error": "an illegal memory access was encountered"}
REFUSED = {"compilation_error": "Error building extension 'x'"}
POOR = {"compilation_error": "x.so: cannot open shared object file"}


def a_run(folder: Path, results: list[dict[str, object] | None]) -> Path:
    folder.mkdir()
    recorded = {}
    for number, result in enumerate(results, start=1):
        (folder / f"level_1_problem_{number}_sample_0_kernel.py").write_text("x = 1\n")
        if result is not None:
            recorded[str(number)] = {"sample_id": 0, "correctness": False, **result}
    (folder / "eval_results.json").write_text(json.dumps(recorded))
    return folder


def test_a_record_blames_the_kernel_or_nobody(tmp_path: Path):
    run = a_run(
        tmp_path / "run",
        [
            {"compiled": True, "correctness": True, "metadata": {}},
            {"compiled": True, "metadata": {"runtime_error": "out of memory"}},
            {"compiled": False, "metadata": REFUSED},
            {"compiled": False, "metadata": CRASHED},
            {"compiled": False, "metadata": POOR},
            None,
        ],
    )
    found = compile_corpus.tasks([run], None, 0)
    assert [task.compiled for task in found] == [True, True, False, None, None, None]


def test_a_sample_is_the_same_for_the_same_seed(tmp_path: Path):
    runs = [a_run(tmp_path / name, [None] * 20) for name in ("a", "b")]
    first = compile_corpus.tasks(runs, 7, 3)
    assert len(first) == 7
    assert first == compile_corpus.tasks(runs, 7, 3)
    assert first != compile_corpus.tasks(runs, 7, 4)
    assert len(compile_corpus.tasks(runs, 700, 3)) == 40
    (tmp_path / "empty").mkdir()
    with pytest.raises(Unusable):
        compile_corpus.tasks([tmp_path / "empty"], None, 0)


def test_shares_leave_out_what_compiles_nothing_and_times_what_was_cached():
    def line(way: str, before: bool | None, seconds: float = 1.0, cached: bool = False):
        return {"way": way, "compiled_before": before, "seconds": seconds, "cached": cached}

    found = compile_corpus.summary(
        [
            line("fast", True, 2.0),
            line("fast", True, 4.0),
            line("fast", True, 0.01, cached=True),
            line("not fast", True),
            line("not fast", False),
            line("fast", None, 3.0),
            {"way": "nothing to compile", "compiled_before": True},
        ]
    )
    assert found["tried"] == 6
    assert found["nothing_to_compile"] == 1
    assert found["compiling"] == {"count": 4, "fast": 3}
    assert found["not_compiling"] == {"count": 1, "fast": 0}
    assert found["fast"]["p50_ms"] == 3000
