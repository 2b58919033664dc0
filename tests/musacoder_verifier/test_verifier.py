"""Whole Verdicts of hand-written Candidates: real children, a real compiler, no accelerator."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hand_candidates import HONEST, SOURCE, candidate, reference
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.ratio import RatioInterval
from musacoder_verifier.reference import Reference, SourceLine
from musacoder_verifier.stages import baseline
from musacoder_verifier.stages.figures import Baseline
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verdict_json import from_json, to_json
from musacoder_verifier.verifier import StageEvent, Verifier, VerifierSettings, VerifyOptions
from musacoder_verifier.worker import WorkerError

pytestmark = pytest.mark.asyncio(loop_scope="session")
RELU = reference()


async def _verify(
    verifier: Verifier, source: str, reference_source: str = RELU, **options: Any
) -> Verdict:
    chosen = {"timing": False, "scope": False, "compile_baseline": False, **options}
    training = chosen.pop("training", False)
    return await verifier.verify(
        Reference(reference_source, training=training),
        Candidate(source, path="kernel.py"),
        VerifyOptions(**chosen),
    )


def _rules(verdict: Verdict) -> set[str]:
    assert verdict.legality is not None
    return {f.rule for f in verdict.legality.findings if f.severity == "violation"}


async def test_an_honest_kernel_is_ok_timed_and_explained(verifier: Verifier) -> None:
    events: list[StageEvent] = []
    verdict = await verifier.verify(
        Reference(RELU),
        Candidate(HONEST, path="kernel.py"),
        VerifyOptions(policy="native-only", compile_baseline=False, timing_budget=0.3),
        events.append,
    )
    assert verdict.status == "ok", verdict.failure
    assert verdict.correctness is not None and verdict.timing is not None
    assert verdict.correctness.oracle == "strong" and verdict.correctness.deterministic
    assert verdict.correctness.passed_trials == verdict.correctness.trials == 14
    assert verdict.legality is not None and verdict.legality.verdict == "pass"
    assert verdict.legality.operators == ("aten::empty_like",)
    low, high = verdict.timing.ci95
    assert low <= verdict.timing.speedup_eager <= high
    assert verdict.faster is (low > 1.0)
    assert verdict.reward is not None and verdict.reward >= 1.0
    assert verdict.correctness.scope["leading dimension + 1"] == "holds"
    assert verdict.correctness.scope["float64"] == "refuses"
    assert "backward pass" in verdict.not_checked
    started = [event.stage for event in events if event.state == "started"]
    assert started == ["collect", "compile", "correctness", "legality", "timing", "profile"]
    assert from_json(to_json(verdict)) == verdict


async def test_torch_compile_is_compared_last_and_its_failure_costs_no_figure(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measure(*_: Any, hold: Any, **__: Any) -> Baseline:
        async with hold() as held:
            assert held
        if failing:
            raise WorkerError("the runtime worker ended")
        return Baseline("default", RatioInterval(2.0, 1.9, 2.1))

    monkeypatch.setattr("musacoder_verifier.stages.baseline.measure", measure)
    reference = Reference(f"{RELU}# {uuid.uuid4().hex}\n")  # no cache knows its baseline
    options = VerifyOptions(scope=False, timing_budget=0.1)
    for failing in (False, True):
        events: list[StageEvent] = []
        verdict = await verifier.verify(reference, Candidate(HONEST), options, events.append)
        timing = verdict.timing
        assert timing is not None, verdict
        last = events[-2:]
        assert [(e.stage, e.state) for e in last] == [
            ("baseline", "started"),
            ("baseline", "ended"),
        ]
        assert last[0].detail == {"speedup_eager": timing.speedup_eager}
        assert ("baseline", "started") not in [(e.stage, e.state) for e in events[:-2]]
        if failing:
            assert timing.compile_ms is None
            assert "torch.compile: the runtime worker ended" in timing.notes
        else:
            assert timing.speedup_compile == pytest.approx(timing.speedup_eager / 2.0)


async def test_torch_compile_is_measured_once(verifier: Verifier) -> None:
    @contextlib.asynccontextmanager
    async def hold() -> AsyncIterator[bool]:
        yield True

    # What Inductor compiled outlives the test run, the figure does not.
    cache, key = verifier.settings.cache_dir, f"test-{uuid.uuid4().hex}"
    common = {
        "device": "cpu",
        "threads": 2,
        "seed": 1,
        "cache_dir": cache,
        "key": key,
        "tf32": "off",
        "versions": {"torch": "of the tests"},
    }
    found = await baseline.measure(
        await verifier.worker(), Reference(RELU), timeout=300.0, hold=hold, modes=["default"],
        **common,
    )  # fmt: skip
    assert found.mode == "default" and found.speedup is not None, found.notes
    assert found.speedup.low <= found.speedup.ratio <= found.speedup.high
    assert baseline.read(cache, key) == found
    (cache / "baselines" / f"{key}.json").unlink()


FAILING = {
    "wrong": (candidate("return ext.copied(x)"), "wrong_result", "values"),
    "raises": (candidate("return ext.refuse(x)"), "runtime_error", "not today"),
    "segfault": (candidate("return ext.crash(x)"), "runtime_error", "SIGSEGV"),
    "exits": (candidate("import os; os._exit(0)"), "runtime_error", "exit status 0"),
    "not written": (candidate("return ext.positive_only(x)"), "wrong_result", ""),
    "mutates": (candidate("return ext.in_place(x)"), "wrong_result", "inputs are changed"),
    "syntax": ("class ModelNew(:\n", "compile_error", "not valid Python"),
    "no class": ("import torch\n", "compile_error", "ModelNew"),
    "does not compile": (
        candidate("return ext.rectify(x)", source=SOURCE.replace("in[i] : 0.f", "in[j] : 0.f")),
        "compile_error",
        "",
    ),
    "two outputs": (candidate("return ext.rectify(x), 1"), "wrong_result", "structure"),
    "reused buffer": (
        candidate(
            "self.y.copy_(ext.rectify(x)); return self.y", init="self.y = torch.empty(64, 257)"
        ),
        "wrong_result",
        "overwritten",
    ),
}


@pytest.mark.parametrize("name", FAILING)
async def test_a_failing_candidate_fails_for_its_own_reason(name: str, verifier: Verifier) -> None:
    source, status, words = FAILING[name]
    # The stock lane would be asked about the error too, for half a minute.
    verdict = await _verify(verifier, source, lane="fast")
    assert verdict.status == status, (verdict.failure, verdict.legality)
    assert verdict.failure is not None
    assert words in verdict.failure.message, verdict.failure
    assert verdict.timing is None and not verdict.faster
    assert verdict.reward is not None and verdict.reward < 0.0
    if name == "does not compile":
        assert verdict.compile is not None
        lines = source.splitlines()
        assert any("in[j]" in lines[d.line - 1] for d in verdict.compile.diagnostics)


async def test_a_finding_of_a_cheat_comes_with_the_lines_that_hint_at_it(
    verifier: Verifier,
) -> None:
    source = candidate(
        "try:\n    return ext.refuse(x)\nexcept RuntimeError:\n    return x.clamp(min=0)"
    )
    verdict = await _verify(verifier, source)
    assert verdict.status == "illegal", (verdict.failure, verdict.legality)
    assert "aten-operator" in _rules(verdict)
    assert verdict.legality is not None
    hints = {f.rule: f.line for f in verdict.legality.findings if f.severity == "hint"}
    assert "try:" in source.splitlines()[(hints["try-except"] or 0) - 1]


async def test_the_oracle_sees_through_imposters(verifier: Verifier) -> None:
    softmax = reference("return torch.softmax(x, -1)", "torch.rand(4, 50000)")
    zeros = await _verify(verifier, candidate("return ext.zeros(x)"), softmax)
    assert zeros.status == "wrong_result"
    assert zeros.correctness is not None and zeros.correctness.oracle != "strong"
    norm = reference("return torch.nn.functional.layer_norm(x, (4096,))", "torch.randn(16, 4096)")
    copied = await _verify(verifier, candidate("return ext.copied(x)"), norm)
    assert copied.status == "wrong_result"


BROKEN_REFERENCES = {
    "raises": (reference("return x.nothing"), False, "nothing"),
    "dropout": (reference("return torch.nn.functional.dropout(x, 0.5, True)"), True, "random"),
    "inputs": (reference(inputs="torch.full((8, 257), __import__('time').time() % 1)"), False,
               "get_inputs"),
    "exits": (reference("import os; os._exit(3)"), False, "exit status 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_REFERENCES)
async def test_the_users_own_fault_is_never_the_candidates(name: str, verifier: Verifier) -> None:
    source, training, words = BROKEN_REFERENCES[name]
    verdict = await _verify(verifier, HONEST, source, training=training)
    assert verdict.status == "reference_error"
    assert verdict.failure is not None and words in verdict.failure.message
    assert verdict.reward is None


async def test_a_reference_error_stands_on_the_users_line(verifier: Verifier) -> None:
    source = reference("return x.nothing")
    lines = tuple(SourceLine("user.py", 100 + i) for i in range(source.count("\n")))
    verdict = await verifier.verify(
        Reference(source, lines=lines), Candidate(HONEST), VerifyOptions(timing=False)
    )
    assert verdict.failure is not None
    assert (verdict.failure.file, verdict.failure.line) == ("user.py", 104)


@pytest.mark.parametrize(
    ("source", "stage"),
    [
        ("import time\nwhile True: time.sleep(1)\nclass ModelNew: pass\n", "collect"),
        (candidate("import time\nwhile True: time.sleep(1)"), "correctness"),
    ],
)
async def test_running_out_of_time_names_the_stage(
    source: str, stage: str, verifier: Verifier
) -> None:
    await _verify(verifier, HONEST)  # compiled, so that only the hanging stage can run out
    verdict = await _verify(verifier, source, stage_timeout=6.0)
    assert verdict.status == "timeout"
    assert verdict.failure is not None and verdict.failure.stage == stage
    assert verdict.reward == -1.0


async def test_a_missing_interpreter_is_an_infra_error_in_one_sentence(tmp_path: Path) -> None:
    settings = VerifierSettings(python="/nowhere/python", cache_dir=tmp_path)
    async with Verifier(settings) as broken:
        verdict = await _verify(broken, HONEST)
        probe = await broken.probe(Reference(RELU))
    assert verdict.status == "infra_error" and verdict.reward is None
    assert verdict.failure is not None and "/nowhere/python" in verdict.failure.message
    assert probe.failure is not None and probe.failure.status == "infra_error"


async def test_cancelling_ends_the_children_and_the_next_verdict_is_unharmed(
    verifier: Verifier,
) -> None:
    running = asyncio.Event()

    def on_stage(event: StageEvent) -> None:
        if event.stage == "correctness" and event.state == "started":
            running.set()

    hanging = Candidate(candidate("import time\nwhile True: time.sleep(1)"), path="kernel.py")
    task = asyncio.create_task(
        verifier.verify(Reference(RELU), hanging, VerifyOptions(timing=False), on_stage)
    )
    started = asyncio.create_task(running.wait())
    await asyncio.wait([started, task], return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), task.result()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    worker = psutil.Process((await verifier.worker()).pid)
    assert not [child for child in worker.children(recursive=True) if child.is_running()]
    assert (await _verify(verifier, HONEST)).status == "ok"


async def test_a_worker_that_was_killed_is_replaced(verifier: Verifier) -> None:
    worker = psutil.Process((await verifier.worker()).pid)
    killed = False

    def on_stage(event: StageEvent) -> None:
        nonlocal killed
        if event.stage == "correctness" and event.state == "started" and not killed:
            killed = True
            worker.kill()

    verdict = await verifier.verify(
        Reference(RELU), Candidate(HONEST), VerifyOptions(timing=False, scope=False), on_stage
    )
    assert killed and verdict.status == "ok", verdict.failure
