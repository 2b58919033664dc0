"""Stage timing: both sides interleaved on fresh inputs, cold caches, under the parent's clock.

The parent alternates "go" messages. Each child reads its own clock around its calls; the parent's
go-to-done time is the outside clock, which a Candidate cannot reach. One sample is as many calls as
it takes to make both clocks and the messages negligible, the same number on both sides.

Every sample is accounted for: its `done` message announces a digest of each output, and only then
the parent draws the calls whose outputs are compared with the Reference's. Seeds and the number of
calls before the first sample are drawn too: nothing tells a Candidate which call will matter.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import Any

from musacoder_verifier.ratio import RatioInterval, product, ratio_of_medians, relative_spread
from musacoder_verifier.stages.pair import Pair
from musacoder_verifier.stages.side import Deadline, StageStop, number
from musacoder_verifier.verdict import Failure, Finding, Timing

# A sample of the faster side should last this long, in seconds.
_SAMPLE_SECONDS = 2e-3
_MOST_CALLS = 256
_FEWEST_SAMPLES = 11
_FEWEST_FOR_FIGURES = 5
_MOST_SAMPLES = 301
# Stop when half the interval is this share of the ratio.
_NARROW = 0.02
# Of each sample so many calls are compared at most, and so many bytes, but at least one call.
_COMPARED_CALLS = 64
_COMPARED_BYTES = 4 << 20
# Outputs of one sample together: all of them are digested.
_OUTPUT_BYTES = 64 << 20
# The outside clock may exceed the Candidate's own by so much more than the Reference's.
_CLOCK_RATIO = 1.5
_CLOCK_SLACK = 2e-3  # seconds a sample
# Below this many bytes the caches decide, and bandwidth says nothing.
_ROOFLINE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class TimingSettings:
    budget: float = 2.0  # seconds of samples
    seed: int = 42
    threads: int = 1


@dataclass
class Samples:
    """Nanoseconds a sample, side by side."""

    calls: int
    reference: list[float] = field(default_factory=list)
    candidate: list[float] = field(default_factory=list)
    reference_outside: list[float] = field(default_factory=list)
    candidate_outside: list[float] = field(default_factory=list)


@dataclass
class TimingOutcome:
    timing: Timing | None
    failure: Failure | None
    findings: list[Finding]


async def measure(
    pair: Pair,
    setup: Mapping[str, Any],
    deadline: Deadline,
    settings: TimingSettings,
) -> TimingOutcome:
    """Time both sides. A Candidate that fails here has failed; StageStop is for the Reference."""
    findings: list[Finding] = []
    try:
        size = max(int(setup["output_bytes"]), 1)
        samples, problem = await _samples(pair, deadline, settings, size, findings)
    except StageStop as stop:
        if stop.failure.status == "reference_error":
            raise
        return TimingOutcome(None, stop.failure, findings)
    if problem is not None:
        return TimingOutcome(None, problem, findings)
    if len(samples.candidate) < _FEWEST_FOR_FIGURES:
        message = f"five samples did not fit into the {deadline.seconds:g} s of the stage timing"
        return TimingOutcome(None, Failure("timeout", "timing", message), findings)
    clock = clock_ratio(samples, findings)
    roofline = await _roofline(pair, setup, samples, deadline, findings)
    return TimingOutcome(timing_of(samples, settings, clock, roofline), None, findings)


async def _samples(
    pair: Pair,
    deadline: Deadline,
    settings: TimingSettings,
    output_bytes: int,
    findings: list[Finding],
) -> tuple[Samples, Failure | None]:
    chance = random.SystemRandom()
    fastest = math.inf
    most = min(_MOST_CALLS, max(1, _OUTPUT_BYTES // output_bytes))
    for side in ("reference", "candidate"):
        seed, rounds = chance.randrange(1 << 31), chance.randint(5, 9)
        message = {"op": "calibrate", "seed": seed, "rounds": rounds}
        answer = await _ask(pair, side, message, deadline)
        fastest = min(fastest, max(number(answer["ns"]), 100.0) * 1e-9)
        if side == "reference":
            # Inputs that come twice in a sample could be recognised.
            most = min(most, int(answer["most_calls"]))
    calls = min(most, math.ceil(chance.uniform(1.0, 1.25) * _SAMPLE_SECONDS / fastest))
    compared = max(1, min(calls, _COMPARED_CALLS, _COMPARED_BYTES // output_bytes))
    samples = Samples(calls)
    ends = min(time.monotonic() + settings.budget, deadline.ends - 1.0)
    order = ("reference", "candidate")
    for index in range(_MOST_SAMPLES):
        if index >= _FEWEST_FOR_FIGURES and time.monotonic() > ends:
            break
        if index >= _FEWEST_SAMPLES and index % 5 == 0 and _interval(samples).width < _NARROW:
            break
        seed = chance.randrange(1 << 31)
        digests: list[str] = []
        # Who goes first alternates: neither side always runs on the other's leftovers.
        for side in order if index % 2 == 0 else order[::-1]:
            await _ask(pair, side, {"op": "prepare", "seed": seed, "calls": calls}, deadline)
            start = time.perf_counter()
            answer = await _ask(pair, side, {"op": "go", "calls": calls}, deadline)
            outside = time.perf_counter() - start
            inside = max(number(answer["ns"]), 1.0)
            getattr(samples, side).append(inside)
            getattr(samples, f"{side}_outside").append(outside * 1e9)
            if side == "candidate":
                digests = [str(digest) for digest in answer["digests"]]
        drawn = chance.sample(range(calls), compared)
        failure = await _recheck(pair, deadline, seed, drawn, digests, findings)
        if failure is not None:
            return samples, failure
    return samples, None


async def _ask(
    pair: Pair, side: str, message: dict[str, Any], deadline: Deadline
) -> Mapping[str, Any]:
    if side == "reference":
        return await pair.reference.ask(message, deadline)
    answer = await pair.candidate.ask(message, deadline, "being timed")
    try:
        if message["op"] in ("go", "calibrate"):
            number(answer["ns"])
        if message["op"] == "go" and len(answer["digests"]) != message["calls"]:
            raise TypeError("not one digest for each call")
    except (KeyError, TypeError) as error:
        raise pair.candidate.nonsense(deadline, error) from error
    return answer


async def _recheck(
    pair: Pair,
    deadline: Deadline,
    seed: int,
    calls: list[int],
    digests: list[str],
    findings: list[Finding],
) -> Failure | None:
    """Compare some timed calls' outputs; which calls was not known when they ran."""
    answer = await pair.candidate.ask({"op": "fetch", "calls": calls}, deadline, "being timed")
    try:
        outputs = dict(answer["outputs"])
        announced = [digests[call] for call in calls]
        message = {"op": "recheck", "seed": seed, "calls": calls, "digests": announced}
        message["outputs"] = outputs
        changes = [(str(rule), str(what)) for rule, what in answer["changes"]]
    except (KeyError, TypeError, ValueError) as error:
        raise pair.candidate.nonsense(deadline, error) from error
    for rule, what in changes:
        text = f"replaced or switched while it was timed: {what}"
        if all(finding.evidence != text for finding in findings):
            findings.append(Finding(rule, text))
    judged = await pair.reference.ask(message, deadline, runs_user_code=False)
    if judged["changed"] is not None:
        text = f"the output of timed call {judged['changed']} changed after it was announced"
        if all(finding.evidence != text for finding in findings):
            findings.append(Finding("work-after-return", text))
    if judged["check"] is None:
        return None
    text = f"right when it was checked, wrong when it was timed: {judged['detail']}"
    findings.append(Finding("wrong-when-timed", text))
    return Failure("wrong_result", "timing", text)


def _interval(samples: Samples) -> RatioInterval:
    return ratio_of_medians(samples.reference, samples.candidate)


def clock_ratio(samples: Samples, findings: list[Finding]) -> float:
    """The Candidate's outside time over its own, and a finding where that is not the messages'.

    What the messages cost is known from the Reference's side, sample by sample.
    """
    inside, outside = median(samples.candidate), median(samples.candidate_outside)
    ours = sorted(o - i for o, i in zip(samples.candidate_outside, samples.candidate, strict=True))
    theirs = sorted(
        o - i for o, i in zip(samples.reference_outside, samples.reference, strict=True)
    )
    # A busy machine delays some messages; a clock that lies is wrong in nearly every sample, so the
    # low end of one side is held against the high end of the other.
    excess = ours[len(ours) // 8] - theirs[-1 - len(theirs) // 8]
    # Of few samples these ends are the very smallest and the very largest.
    enough = len(ours) >= _FEWEST_FOR_FIGURES
    if enough and excess > _CLOCK_SLACK * 1e9 and excess > (_CLOCK_RATIO - 1.0) * inside:
        text = (
            f"its own clock says {inside * 1e-6:.3g} ms a sample, the parent's says "
            f"{outside * 1e-6:.3g} ms"
        )
        findings.append(Finding("clock", text))
    return outside / inside


async def _roofline(
    pair: Pair,
    setup: Mapping[str, Any],
    samples: Samples,
    deadline: Deadline,
    findings: list[Finding],
) -> dict[str, float]:
    """The time that writing the outputs alone must take, at the device's measured bandwidth;
    nothing for outputs that the caches hold."""
    written = float(setup["output_bytes"])
    if written <= _ROOFLINE_BYTES:
        return {}
    answer = await pair.reference.ask({"op": "bandwidth"}, deadline, runs_user_code=False)
    bandwidth = float(answer["bytes_per_second"])
    floor_ms = 1e3 * written / bandwidth
    per_call = median(samples.candidate) * 1e-6 / samples.calls
    roofline = {
        "bytes_per_second": bandwidth,
        "output_bytes": written,
        "floor_ms": floor_ms,
        "fraction": floor_ms / per_call,
    }
    # Half: bandwidth of pure writes may be above that of copying.
    if per_call < 0.5 * floor_ms:
        text = f"{per_call:.3g} ms is less than writing the output takes ({floor_ms:.3g} ms)"
        findings.append(Finding("roofline", text))
    return roofline


@dataclass(frozen=True, slots=True)
class Baseline:
    """torch.compile's best mode against eager: time of eager over time of compiled."""

    mode: str | None
    speedup: RatioInterval | None
    notes: tuple[str, ...] = ()


def timing_of(
    samples: Samples, settings: TimingSettings, clock: float, roofline: dict[str, float]
) -> Timing:
    """The figures of samples, against eager; `clock` and `roofline` go along as they are."""
    eager = _interval(samples)
    scale = 1e-6 / samples.calls
    return Timing(
        candidate_ms=median(samples.candidate) * scale,
        eager_ms=median(samples.reference) * scale,
        compile_ms=None,
        speedup_eager=eager.ratio,
        speedup_compile=None,
        ci95=(eager.low, eager.high),
        samples=len(samples.candidate),
        spread={
            "eager": relative_spread(samples.reference),
            "candidate": relative_spread(samples.candidate),
        },
        statistics={
            "eager": _statistics(samples.reference, scale),
            "candidate": _statistics(samples.candidate, scale),
        },
        interleaved=True,
        threads=settings.threads,
        outside_clock_ratio=clock,
        roofline=roofline,
        notes=(f"{samples.calls} calls a sample",) if samples.calls > 1 else (),
    )


def _statistics(samples: Sequence[float], scale: float) -> dict[str, float]:
    return {
        "mean": fmean(samples) * scale,
        "std": stdev(samples) * scale,
        "min": min(samples) * scale,
        "max": max(samples) * scale,
    }


def compared(timing: Timing, baseline: Baseline | None) -> Timing:
    """The figures with those against torch.compile, which ride on eager's."""
    if baseline is None:
        return replace(timing, notes=("torch.compile was not measured", *timing.notes))
    noted = replace(timing, compile_mode=baseline.mode, notes=(*baseline.notes, *timing.notes))
    speedup = baseline.speedup
    if speedup is None:
        return noted
    inverse = RatioInterval(1.0 / speedup.ratio, 1.0 / speedup.high, 1.0 / speedup.low)
    compiled = product(RatioInterval(timing.speedup_eager, *timing.ci95), inverse)
    return replace(
        noted,
        compile_ms=timing.eager_ms / speedup.ratio,
        speedup_compile=compiled.ratio,
        ci95_compile=(compiled.low, compiled.high),
    )
