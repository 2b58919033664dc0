"""KernelBench mode: its seeds, its comparison, its words."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from hand_candidates import HONEST, candidate, reference
from musacoder_runtime import kernelbench as trials
from musacoder_verifier import kernelbench
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verdict_json import from_json, to_json
from musacoder_verifier.verifier import Verifier

ONE = {"leaf": 0}


def test_trial_seeds_are_those_of_kernelbench() -> None:
    torch.manual_seed(42)
    expected = [torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(5)]
    torch.manual_seed(7)
    assert trials.trial_seeds(42, 5) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_the_comparison_is_allclose_with_the_tolerance_on_the_candidate(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_CHUNK", 7)
    torch.manual_seed(1)
    for scale in (0.0, 1e-5, 1e-3, 0.5):
        theirs = (torch.randn(5, 9) * 4).to(dtype)
        ours = (theirs.double() + scale * torch.randn(5, 9)).to(dtype)
        told = trials.compare((ONE, [ours]), (ONE, [theirs]), (1e-2, 1e-4))
        assert told["passes"] == [
            torch.allclose(theirs, ours, atol=limit, rtol=limit) for limit in (1e-2, 1e-4)
        ]
        assert told["max_difference"] == pytest.approx(float((theirs - ours).abs().max()))
        assert told["avg_difference"] == pytest.approx(
            float((theirs - ours).abs().double().mean()), rel=1e-6
        )


def test_what_cannot_be_close() -> None:
    one = torch.ones(3)
    for ours, theirs, name in (
        (torch.ones(3, 1), one, "shape"),
        (one.double(), one, "error"),
        (2.0, one, "error"),
        (one * math.nan, one * math.nan, None),
        (torch.tensor([1.0, math.inf, 1.0]), one, None),
    ):
        told = trials.compare((ONE, [ours]), (ONE, [theirs]), (1e-2,))
        assert told["passes"] == [False]
        assert name is None or told[name]
    both = trials.compare((ONE, [one * math.inf]), (ONE, [one * math.inf]), (1e-2,))
    assert both["passes"] == [True]
    assert trials.compare((None, []), (ONE, [one]), (1e-2,))["passes"] == [False]


async def _verify(verifier: Verifier, source: str, tolerance: float | None = None) -> Verdict:
    verdict = await verifier.verify(
        Reference(reference(), training=True),
        Candidate(source, path="kernel.py"),
        kernelbench.options("cpu", tolerance=tolerance, timing=False),
    )
    assert from_json(to_json(verdict)) == verdict
    return verdict


@pytest.mark.asyncio(loop_scope="session")
async def test_statuses_and_schema(verifier: Verifier) -> None:
    verdict = await _verify(verifier, HONEST)
    assert verdict.status == "ok" and verdict.versions["tf32"] == "default"
    result = kernelbench.result(verdict)
    assert result is not None and result["compiled"] and result["correctness"]
    assert result["metadata"]["correctness_trials"] == "(5 / 5)"
    assert result["runtime"] == -1.0

    # 5e-3 beside every value: right at 1e-2, wrong at 1e-4. All of it is computed by torch, which
    # this policy does not mind.
    near = candidate("return ext.rectify(x) + 5e-3")
    verdict = await _verify(verifier, near)
    assert verdict.status == "wrong_result"
    likened = verdict.correctness.kernelbench if verdict.correctness is not None else None
    assert likened is not None and likened.passed == {"0.01": 5, "0.0001": 0}
    result = kernelbench.result(verdict)
    assert result is not None and not result["correctness"] and result["compiled"]
    assert result["metadata"]["correctness_issue"] == "Output mismatch"
    assert result["metadata"]["max_difference"] == ["0.005000"] * 5
    assert (await _verify(verifier, near, tolerance=1e-2)).status == "ok"

    verdict = await _verify(verifier, candidate("return ext.summed(x)"))
    result = kernelbench.result(verdict)
    assert result is not None and "correctness_trials" not in result["metadata"]
    assert result["metadata"]["correctness_issue"].startswith("Output shape mismatch: Expected")

    result = kernelbench.result(await _verify(verifier, candidate("return ext.refuse(x)")))
    assert result is not None and "not today" in result["metadata"]["runtime_error"]
    result = kernelbench.result(await _verify(verifier, "class ModelNew(:\n"))
    assert result is not None and not result["compiled"]
    json.dumps(result, allow_nan=False)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_fault_of_the_machine_is_no_result(verifier: Verifier) -> None:
    verdict = await _verify(verifier, HONEST)
    assert kernelbench.result(dataclasses.replace(verdict, status="infra_error")) is None
