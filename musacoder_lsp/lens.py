"""The one line above a Site: what it says and what a click does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from musacoder_verifier.verdict import Verdict

from musacoder_lsp.assistant import Trajectory, Turn
from musacoder_lsp.jobs.job import Job
from musacoder_lsp.sites.site import Site

Click = Literal["generate", "annotate", "report", "none"]

_FAILED = {
    "compile_error": "compile error",
    "runtime_error": "runtime error",
    "wrong_result": "wrong result",
    "illegal": "illegal kernel",
    "timeout": "timeout",
    "reference_error": "reference error",
    "infra_error": "could not verify",
}
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class LensText:
    title: str
    click: Click


@dataclass(frozen=True, slots=True)
class SiteState:
    """All that decides a lens. `trajectory` is the newest one; `stale` says, in a few words, why it
    no longer speaks of the present source, None while it does. `problem` is why the last Job
    ended before there was a Trajectory."""

    site: Site
    job: Job | None = None
    trajectory: Trajectory | None = None
    stale: str | None = None
    problem: str | None = None


def lens(state: SiteState, now: float) -> LensText:
    """`now` is the clock of `JobStatus.since`, in seconds."""
    if state.job is not None and not state.job.ended:
        return LensText(job_text(state.job, now), "none")
    trajectory = state.trajectory
    if trajectory is not None and state.stale is not None:
        best = trajectory.best
        was = f" (was {_figures(best.verdict)})" if best and best.verdict.timing else ""
        return LensText(f"stale{was}", "generate")
    if state.problem is not None:
        return LensText(_short(f"failed: {state.problem}"), "generate")
    if trajectory is not None:
        return LensText(_short(_outcome(trajectory)), "report")
    if state.site.missing:
        return LensText(_short(f"needs shapes: {', '.join(state.site.missing)}"), "annotate")
    if state.site.problem is not None:
        return LensText(_short(state.site.problem), "none")
    return LensText("Generate kernel", "generate")


def job_text(job: Job, now: float) -> str:
    status = job.status
    words: str = status.state
    if status.state == "generating":
        minutes, seconds = divmod(max(0, int(now - status.since)), 60)
        words = f"generating {minutes:02}:{seconds:02}"
        if status.tokens_per_second is not None:
            words += f", {status.tokens_per_second:.0f} tok/s"
    elif status.state == "preparing":
        words = "preparing, once"
    elif status.state == "waiting":
        words = f"waiting for {status.detail}" if status.detail else "waiting"
    elif status.state == "comparing":
        words = "comparing with torch.compile"
        if status.speedup is not None:
            words = f"{_ratio(status.speedup)} vs eager · {words}"
    if status.of > 1:
        words = f"attempt {status.turn}/{status.of} · {words}"
    return words


def author(trajectory: Trajectory, turn: Turn) -> str | None:
    """Who wrote a Turn, where it was no model: `synth, no model`."""
    provenance = turn.candidate.provenance
    if provenance.engine == "hand":
        return "edited by hand"
    return None if provenance.model is not None else f"{provenance.engine}, no model"


def speed_shown(verdict: Verdict) -> bool:
    """A figure is shown only for a correct, legal kernel and a strong enough oracle."""
    return (
        verdict.status == "ok"
        and verdict.timing is not None
        and (verdict.legality is None or verdict.legality.verdict == "pass")
        and (verdict.correctness is None or verdict.correctness.oracle != "weak")
    )


def _outcome(trajectory: Trajectory) -> str:
    best = trajectory.best
    if best is not None:
        by = author(trajectory, best)
        return _figures(best.verdict) + (f" · {by}" if by else "")
    if trajectory.failure is not None:
        words = _FAILED.get(trajectory.failure.status, trajectory.failure.status)
        return f"failed: {words}: {trajectory.failure.message}"
    last = trajectory.last
    if last is None:
        return trajectory.reason or "failed: no kernel"
    words = _FAILED.get(last.verdict.status, last.verdict.status)
    failure = last.verdict.failure
    if last.verdict.status == "timeout" and failure is not None:
        words = f"timeout in {failure.stage}"
    elif last.verdict.status in ("reference_error", "infra_error") and failure is not None:
        words = f"{words}: {failure.message}"
    return f"failed: {words}"


def _figures(verdict: Verdict) -> str:
    timing = verdict.timing
    if timing is None or not speed_shown(verdict):
        if verdict.legality is not None and verdict.legality.verdict == "unknown":
            return "correct, no figure: legality unknown"
        if verdict.correctness is not None and verdict.correctness.oracle == "weak":
            return "correct, no figure: weak check"
        return "correct, not timed"
    if timing.speedup_eager < 1 and not verdict.faster:
        return f"correct, slower {_ratio(timing.speedup_eager)}"
    text = f"{_ratio(timing.speedup_eager)} vs eager"
    if timing.speedup_compile is not None:
        text += f" · {_ratio(timing.speedup_compile)} vs compile"
    if not verdict.faster:
        text = f"correct, same speed: {text}"
    return text


def _ratio(value: float) -> str:
    """Three significant digits at most; never rounded up to a speed-up that was not measured."""
    if value >= 100:
        return f"{value:.0f}x"
    if value >= 10:
        return f"{value:.1f}x"
    return f"{value:.2f}x"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
