"""What `musacoder bench timing` concludes from Verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from musacoder_verifier.verdict import Failure, Timing, Verdict

from musacoder_lsp.cli.bench.timing import summary


def _verdict(speedup: float, reach: float = 0.05) -> Verdict:
    timing = Timing(
        candidate_ms=0.1, eager_ms=0.1 * speedup, compile_ms=None, speedup_eager=speedup,
        speedup_compile=None, ci95=(speedup - reach, speedup + reach), samples=11,
    )  # fmt: skip
    return Verdict(
        status="ok", policy="native-only", faster=True, stages={}, failure=None, compile=None,
        correctness=None, legality=None, timing=timing, reward=None, backend="cpu", device="cpu",
        workload=None, versions={}, key="", not_checked=(), wall_seconds=1.0,
    )  # fmt: skip


def test_variation_and_coverage_are_of_the_runs() -> None:
    found = summary("relu", [_verdict(2.0 + d) for d in (-0.1, 0.0, 0.1)], [])
    assert (found.runs, found.speedup, found.intervals) == (3, 2.0, 3)
    assert found.variation == pytest.approx(0.05)
    assert found.covered == 1
    assert found.candidate_us == pytest.approx(100.0)


def test_intervals_are_those_of_short_runs() -> None:
    found = summary("relu", [_verdict(2.0)] * 3, [_verdict(2.04), _verdict(2.0), _verdict(1.0)])
    assert (found.covered, found.intervals, found.variation) == (2, 3, 0.0)


def test_a_kernel_that_is_not_timed_says_why() -> None:
    failed = replace(
        _verdict(1.0), timing=None, failure=Failure("timeout", "timing", "it took too long")
    )
    found = summary("relu", [_verdict(1.0), failed], [])
    assert (found.problem, found.runs) == ("it took too long", 0)
