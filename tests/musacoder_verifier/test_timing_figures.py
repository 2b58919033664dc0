"""Figures of a device with a clock of its own, and intervals of samples that come in pairs."""

from __future__ import annotations

import random
from statistics import median

import pytest
from musacoder_verifier.backends.base import Conditions
from musacoder_verifier.ratio import bootstrapped, ratio_of_medians
from musacoder_verifier.stages.figures import Samples, TimingSettings, hidden_work, timing_of
from musacoder_verifier.verdict import Finding

US = 1e3  # nanoseconds


def _samples(calls: int, device_us: float, host_us: float) -> Samples:
    samples = Samples(calls)
    for _ in range(12):
        for side in ("reference", "candidate"):
            inside = calls * device_us * US
            samples.add(side, inside, inside + 50 * US, calls * host_us * US)
    return samples


def _found(device_us: float, host_us: float, span_us: float) -> list[str]:
    findings: list[Finding] = []
    hidden_work(_samples(4, device_us, host_us), _samples(16, span_us, host_us), findings)
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(
    ("device_us", "host_us", "span_us"),
    [
        (100.0, 10.0, 105.0),  # the queue is full: the device's time
        (2.0, 10.0, 12.0),  # the queue is empty: the host's
        (100.0, 12.0, 150.0),  # it waits for the device after every call
    ],
)
def test_launching_and_waiting_are_no_hidden_work(
    device_us: float, host_us: float, span_us: float
) -> None:
    assert _found(device_us, host_us, span_us) == []


def test_work_on_another_queue_shows_where_all_work_counts() -> None:
    assert _found(2.0, 10.0, 400.0) == ["clock"]


def test_a_busy_host_does_not_excuse_hidden_work() -> None:
    device, spans = _samples(4, 2.0, 10.0), _samples(16, 400.0, 10.0)
    device.candidate_host = [4 * 390.0 * US] * 12
    findings: list[Finding] = []
    hidden_work(device, spans, findings)
    assert [finding.rule for finding in findings] == ["clock"]


def test_a_small_kernels_launch_is_told_apart() -> None:
    spans = _samples(16, 12.0, 10.0)
    spans.candidate = [value * 2.0 for value in spans.candidate]
    conditions = Conditions(("the GPU was slowed down (power cap)",), {"sm_mhz": 1500.0})
    timing = timing_of(_samples(4, 2.0, 10.0), TimingSettings(), 1.0, {}, spans, conditions)
    assert timing.candidate_ms == pytest.approx(0.002)
    assert timing.host_ms == {"eager": pytest.approx(0.01), "candidate": pytest.approx(0.01)}
    assert timing.conditions == {"sm_mhz": 1500.0}
    assert any("0.50x" in note for note in timing.notes)
    assert "the GPU was slowed down (power cap)" in timing.notes
    turns = timing_of(_samples(4, 2.0, 10.0), TimingSettings(take_turns=True), 1.0, {})
    assert not turns.interleaved and any("took turns" in note for note in turns.notes)


def test_what_slows_both_sides_down_does_not_widen_the_interval() -> None:
    chance = random.Random(5)
    drift = [1.0 + 0.5 * chance.random() for _ in range(60)]
    numerator = [2.0 * d * chance.gauss(1.0, 0.002) for d in drift]
    denominator = [d * chance.gauss(1.0, 0.002) for d in drift]
    paired, unpaired = (
        bootstrapped(numerator, denominator),
        ratio_of_medians(numerator, denominator),
    )
    assert paired.low <= 2.0 <= paired.high
    assert paired.width < unpaired.width / 3.0
    assert bootstrapped(numerator, denominator) == paired


def test_the_paired_interval_covers_the_true_ratio() -> None:
    chance = random.Random(11)
    covered = 0
    for _ in range(100):
        drift = [chance.lognormvariate(0.0, 0.05) for _ in range(25)]
        numerator = [3.0 * d * chance.lognormvariate(0.0, 0.02) for d in drift]
        denominator = [d * chance.lognormvariate(0.0, 0.02) for d in drift]
        interval = bootstrapped(numerator, denominator, resamples=199)
        assert interval.ratio == median(numerator) / median(denominator)
        covered += interval.low <= 3.0 <= interval.high
    assert covered >= 90


def test_samples_of_unequal_number_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        bootstrapped([1.0] * 6, [1.0] * 7)
