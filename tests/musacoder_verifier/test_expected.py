"""Expected values where memory is short: the same answers, with nothing kept between trials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import musacoder_verifier
import pytest
import torch
from musacoder_runtime import expected, judge, oracle, tensor_tree

RUNTIME = Path(musacoder_verifier.__file__).parent / "runtime"

# Both sides in one process, without a sandbox: what they answer is all that counts here.
BOTH_SIDES = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
from musacoder_runtime.children import candidate, reference
REFERENCE = '''
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        x.mul_(2.0)
        return torch.softmax(x, dim=1)
def get_inputs():
    return [torch.randn(16, 257)]
'''
outputs, state = os.memfd_create("outputs"), os.memfd_create("state")
spec = {
    "reference": {"source": REFERENCE, "path": None, "import_roots": [], "training": False},
    "device": "cpu", "threads": 1, "seed": 1, "tf32": "off", "host_inputs": False,
}
answers = []
for sparing in (False, True):
    notes = []
    judging = reference.Judge({**spec, "take_turns": sparing}, outputs, state, notes.append)
    made = {**spec, "source": REFERENCE.replace("Model", "ModelNew"), "path": "k", "artefacts": {}}
    checked = candidate.CheckedCandidate(made, outputs, state)
    ask, run = judging.operations(), checked.operations()
    told = []
    first = ask["setup"]({"op": "setup", "seed": 1})
    told.append([first["digest"], run["setup"]({"op": "setup"})["digest"]])
    checked._sparing = sparing
    for index, distribution in enumerate(["own", "own", "wide"]):
        recipe = {"seed": 1 + index, "distribution": distribution, "index": index}
        expected = ask["trial"](dict(recipe))
        answer = run["trial"]({**recipe, "reuse": index == 1, "poison": False, "shadow": False})
        told.append([expected, answer["digest"], answer["mutated"]])
        judged = ask["judge"]({"outputs": answer["outputs"], "index": index, "first": True})
        told.append(judged)
        told.append(ask["judge_effects"]({"outputs": answer["effects"]}))
        told.append(run["again"](dict(recipe)))
        if sparing:
            ask["rest"]({})
            run["rest"]({})
    told.append(ask["oracle"]({}))
    answers.append(told)
    running = [note["user_code"]["running"] for note in notes]
    assert running and running == [True, False] * (len(running) // 2), running
print(json.dumps(answers))
"""


def test_what_is_not_kept_is_made_once_more_and_is_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOTH_SIDES, str(RUNTIME)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    plentiful, sparing = json.loads(done.stdout.splitlines()[-1])
    for told in (plentiful, sparing):
        for answer in told:
            if isinstance(answer, dict):
                # A side that gave its memory back has nothing to compare a second run with.
                answer.pop("same", None), answer.pop("outputs", None)
    assert plentiful == sparing
    assert plentiful[2]["check"] is None and plentiful[2]["candidate_error"] is not None
    assert plentiful[1][2] == [0]


def test_an_output_that_is_mostly_not_finite_is_of_no_use() -> None:
    leaf = torch.zeros(10)
    leaf[:5] = float("nan")
    assert expected.useful(({"leaf": 0}, [leaf]))
    leaf[5] = float("inf")
    assert not expected.useful(({"leaf": 0}, [leaf]))
    assert expected.useful(({"leaf": 0}, [torch.zeros(0), 3, torch.zeros(2, dtype=torch.int64)]))


def test_what_is_looked_at_in_pieces_is_seen_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_CHUNK", 4)
    monkeypatch.setattr(expected, "_CHUNK", 4)
    values = torch.zeros(11, dtype=torch.int64)
    other = values.clone()
    assert not expected.varies(values)
    assert judge.compare(other, values, None).passes
    other[10], other[2] = 7, 1
    assert expected.varies(other)
    wrong = judge.compare(other, values, None)
    assert wrong.detail == "2 of 11 elements differ, first 1 instead of 0"
    assert (wrong.max_abs_error, wrong.max_rel_error) == (7.0, 7.0)
    odd = torch.tensor([0.0, float("nan")] * 5)
    assert judge.identical(odd, odd.clone(), nan=True)
    assert not judge.identical(odd, odd.clone())
    assert not judge.identical(odd, torch.zeros(10), nan=True)


def test_imposters_are_made_one_at_a_time() -> None:
    leaf = torch.arange(12.0).reshape(3, 4)
    false = oracle.imposters(({"leaf": 0}, [leaf]), [leaf + 1], ({"leaf": 0}, [leaf * 2]))
    assert next(false)[0] == "zeros"
    assert [name for name, _ in false] == ["constant", "permuted", "input", "stale"]


@pytest.mark.parametrize("size", [0, 1, 5, 16, 35])
def test_pieces_that_several_threads_copy_are_the_whole(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_tree, "_STAGING_BYTES", 5)
    monkeypatch.setattr(tensor_tree, "_staging", tensor_tree._Staging())
    given = torch.arange(size, dtype=torch.uint8)
    taken = torch.zeros(size, dtype=torch.uint8)

    def copy(start: int, end: int, staging: torch.Tensor) -> None:
        staging[: end - start].copy_(given[start:end])
        taken[start:end].copy_(staging[: end - start])

    tensor_tree._staged(size, copy)
    assert torch.equal(given, taken)


def test_a_piece_that_fails_fails_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_tree, "_STAGING_BYTES", 5)

    def copy_until(limit: int) -> Callable[[int, int, torch.Tensor], None]:
        def copy(start: int, end: int, staging: torch.Tensor) -> None:
            if end > limit:
                raise OSError(os.strerror(27))

        return copy

    tensor_tree._staged(35, copy_until(35))
    for limit in (0, 12, 30):
        with pytest.raises(OSError, match="too large"):
            tensor_tree._staged(35, copy_until(limit))
