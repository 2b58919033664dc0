"""What the samples of the timing stage say: figures, their intervals, and clocks that disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev

from musacoder_verifier.backends.base import Conditions
from musacoder_verifier.ratio import (
    RatioInterval,
    bootstrapped,
    product,
    ratio_of_medians,
    relative_spread,
)
from musacoder_verifier.verdict import Finding, Timing

FEWEST_FOR_FIGURES = 5
# The outside clock may exceed the Candidate's own by so much more than the Reference's.
_CLOCK_RATIO = 1.5
_CLOCK_SLACK = 2e-3  # seconds a sample
# What a call back to back may take beyond the device's own time, in nanoseconds: launching,
# waiting, and what the host does, which is believed up to a multiple of the Reference's.
_SPAN_SLACK_NS = 20e3
_HOST_SLACK_NS = 50e3
_HOST_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """`narrow`: stop when half the interval is this share of the ratio. `take_turns`: the sides do
    not fit on the device together."""

    budget: float = 2.0  # seconds of samples
    seed: int = 42
    threads: int = 1
    narrow: float = 0.02
    take_turns: bool = False


@dataclass
class Samples:
    """Nanoseconds a sample, side by side; `host` is of calls, until they are handed over."""

    calls: int
    reference: list[float] = field(default_factory=list)
    candidate: list[float] = field(default_factory=list)
    reference_outside: list[float] = field(default_factory=list)
    candidate_outside: list[float] = field(default_factory=list)
    reference_host: list[float] = field(default_factory=list)
    candidate_host: list[float] = field(default_factory=list)

    def add(self, side: str, inside: float, outside: float, host: float) -> None:
        """A sample of `reference` or `candidate`."""
        getattr(self, side).append(inside)
        getattr(self, f"{side}_outside").append(outside)
        getattr(self, f"{side}_host").append(host)


def interval(samples: Samples) -> RatioInterval:
    """Of the ratio, without resampling: for deciding whether more samples are needed."""
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
    enough = len(ours) >= FEWEST_FOR_FIGURES
    if enough and excess > _CLOCK_SLACK * 1e9 and excess > (_CLOCK_RATIO - 1.0) * inside:
        text = (
            f"its own clock says {inside * 1e-6:.3g} ms a sample, the parent's says "
            f"{outside * 1e-6:.3g} ms"
        )
        findings.append(Finding("clock", text))
    return outside / inside


def hidden_work(samples: Samples, spans: Samples, findings: list[Finding]) -> None:
    """A finding where calls back to back take longer than the device's clock and the host account
    for: the work ran where the device's clock did not look, on another queue or in another thread.
    """
    if not spans.candidate or not spans.reference:
        return
    device = median(samples.candidate) / samples.calls
    theirs = median(samples.reference_host) / samples.calls
    host = min(
        median(samples.candidate_host) / samples.calls, _HOST_RATIO * theirs + _HOST_SLACK_NS
    )
    # The fastest one: what else the machine does makes them longer only.
    seen = min(spans.candidate) / spans.calls
    if seen > _CLOCK_RATIO * device + host + _SPAN_SLACK_NS:
        text = (
            f"its queue says {device * 1e-6:.3g} ms a call, until all work on the device is done "
            f"it takes {seen * 1e-6:.3g} ms"
        )
        findings.append(Finding("clock", text))


@dataclass(frozen=True, slots=True)
class Baseline:
    """torch.compile's best mode against eager: time of eager over time of compiled."""

    mode: str | None
    speedup: RatioInterval | None
    notes: tuple[str, ...] = ()


def timing_of(
    samples: Samples,
    settings: TimingSettings,
    clock: float,
    roofline: dict[str, float],
    spans: Samples | None = None,
    conditions: Conditions = Conditions(),  # noqa: B008
) -> Timing:
    """The figures of samples, against eager; `clock` and `roofline` go along as they are."""
    eager = bootstrapped(samples.reference, samples.candidate)
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
        interleaved=not settings.take_turns,
        threads=settings.threads,
        outside_clock_ratio=clock,
        roofline=roofline,
        notes=tuple(_notes(samples, settings, spans, conditions)),
        host_ms={
            "eager": median(samples.reference_host) * scale,
            "candidate": median(samples.candidate_host) * scale,
        }
        if spans is not None
        else {},
        conditions=conditions.figures,
    )


def _notes(
    samples: Samples, settings: TimingSettings, spans: Samples | None, conditions: Conditions
) -> Iterator[str]:
    if samples.calls > 1:
        yield f"{samples.calls} calls a sample"
    if settings.take_turns:
        yield "not interleaved: both sides do not fit on the device together and took turns"
    yield from conditions.notes
    if spans is None or not spans.candidate or not spans.reference:
        return
    device = median(samples.candidate) / samples.calls
    host = median(samples.candidate_host) / samples.calls
    if host > device:
        ratio = median(spans.reference) / median(spans.candidate)
        yield (
            f"launching takes longer than the kernel ({host * 1e-3:.3g} us a call); back to back, "
            f"launches included, it is {ratio:.2f}x"
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
