"""What the timing stage concludes from samples, and who may measure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from musacoder_verifier import measurement_lock
from musacoder_verifier.backends import registry
from musacoder_verifier.ratio import RatioInterval
from musacoder_verifier.stages.evidence import Evidence
from musacoder_verifier.stages.figures import (
    Baseline,
    Samples,
    TimingSettings,
    clock_ratio,
    compared,
    timing_of,
)
from musacoder_verifier.stages.legality import judge
from musacoder_verifier.stages.native_code import NativeCode, Place
from musacoder_verifier.verdict import Finding

MS = 1e6  # nanoseconds


def _samples(candidate_says: float, parent_sees: float) -> Samples:
    return Samples(
        calls=4,
        reference=[20 * MS] * 16,
        candidate=[candidate_says * MS] * 16,
        reference_outside=[20.4 * MS] * 16,
        candidate_outside=[parent_sees * MS] * 16,
    )


def test_a_clock_that_runs_slow_is_found_out_by_the_parents() -> None:
    findings: list[Finding] = []
    assert clock_ratio(_samples(1.0, 10.4), findings) == pytest.approx(10.4)
    assert [finding.rule for finding in findings] == ["clock"]


@pytest.mark.parametrize("seen", [10.4, 10.9, 12.0])
def test_the_cost_of_messages_is_no_finding(seen: float) -> None:
    findings: list[Finding] = []
    clock_ratio(_samples(10.0, seen), findings)
    assert not findings


def test_delayed_messages_on_a_busy_machine_are_no_finding() -> None:
    samples = _samples(2.0, 14.0)
    samples.candidate_outside[:3] = [2.4 * MS] * 3
    findings: list[Finding] = []
    clock_ratio(samples, findings)
    assert not findings


def test_times_are_a_call_and_the_compiled_baseline_rides_on_eager() -> None:
    baseline = Baseline("default", RatioInterval(1.6, 1.5, 1.7))
    timed = timing_of(_samples(10.0, 10.4), TimingSettings(threads=2), 1.04, {})
    timing = compared(timed, baseline)
    assert (timing.eager_ms, timing.candidate_ms) == (5.0, 2.5)
    assert timing.speedup_eager == 2.0
    assert timing.compile_ms == pytest.approx(5.0 / 1.6)
    assert timing.speedup_compile == pytest.approx(2.0 / 1.6)
    assert timing.ci95_compile is not None
    assert timing.ci95_compile[0] < 1.25 < timing.ci95_compile[1]
    without = compared(timed, None)
    assert without.compile_ms is None and "torch.compile was not measured" in without.notes


async def test_only_one_measures_and_the_other_says_that_it_waits(tmp_path: Path) -> None:
    waits: list[str] = []
    order: list[str] = []

    async def second() -> None:
        async with measurement_lock.hold(tmp_path, "d", lambda: waits.append("w"), 30.0) as held:
            assert held
            order.append("second")

    async with measurement_lock.hold(tmp_path, "d", lambda: waits.append("?"), 1.0) as held:
        assert held
        task = asyncio.create_task(second())
        while not waits:
            await asyncio.sleep(0)
        order.append("first")
    await task
    assert (order, waits) == (["first", "second"], ["w"])


async def test_a_lock_that_is_not_to_be_had_is_said(tmp_path: Path) -> None:
    async with measurement_lock.hold(tmp_path, "d", lambda: None, 1.0):
        async with measurement_lock.hold(tmp_path, "d", lambda: None, 0.0) as held:
            assert not held
        async with measurement_lock.hold(tmp_path, "other", lambda: None, 0.0) as held:
            assert held
    file = tmp_path / "file"
    file.write_text("")
    async with measurement_lock.hold(file / "x", "d", lambda: None, 0.0) as held:
        assert not held


def _judged(
    evidence: Evidence, native: NativeCode | None = None, policy: str = "native-only"
) -> str:
    found = native or NativeCode(extensions=1)
    return judge(evidence, (), found, None, policy=policy, path="k.py").verdict


def test_legality_is_unknown_where_nothing_was_seen() -> None:
    assert _judged(Evidence(runs=3)) == "pass"
    assert _judged(Evidence(runs=0)) == "unknown"
    assert _judged(Evidence(runs=3, unprofiled="no profiler")) == "unknown"
    assert _judged(Evidence(runs=3, runs_without_calls=1)) == "fail"
    assert _judged(Evidence(runs=3, runs_without_calls=1, witness_complete=False)) == "unknown"


def test_vendor_libraries_are_a_matter_of_policy() -> None:
    gemm = NativeCode(extensions=1, vendor=(Place("cblas_sgemm"),))
    assert _judged(Evidence(runs=3), gemm) == "fail"
    assert _judged(Evidence(runs=3), gemm, "libraries-allowed") == "pass"


def test_an_unknown_backend_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="tpu"):
        registry.backend("tpu")
