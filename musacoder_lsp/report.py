"""The report on a Site: lines of at most 79 columns, for hover, command line and files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from musacoder_verifier.policy import severity
from musacoder_verifier.profile.bottleneck import amount, duration
from musacoder_verifier.profile.kernel_profile import KernelProfile, ProfiledKernel
from musacoder_verifier.verdict import Correctness, Timing, Verdict

from musacoder_lsp.assistant import Trajectory, Turn
from musacoder_lsp.lens import SiteState, author, job_text, speed_shown

WIDTH = 79
_LABEL = 11
_MAX_LINES = 60
_MAX_DETAIL = 12
_MAX_KERNELS = 4


def report(state: SiteState, now: float) -> tuple[str, ...]:
    """What is known of a Site; `now` is the clock of `JobStatus.since`."""
    site = state.site
    lines = [*_wrap("site", f"{site.kind} {site.name}")]
    if site.operations:
        lines += _wrap("operations", ", ".join(site.operations))
    if site.missing:
        lines += _wrap("needs", f"shapes or values of {', '.join(site.missing)}")
        lines += _wrap("", "write them as a comment above, such as")
        lines += _wrap("", f"# musacoder: {site.missing[0]}: f32[1024, 1024]")
    if site.problem:
        lines += _wrap("annotation", site.problem)
    if state.job is not None and not state.job.ended:
        lines += _wrap("job", f"{job_text(state.job, now)} ({state.job.cause})")
    if state.problem:
        lines += _wrap("failed", state.problem)
    if state.trajectory is not None:
        if state.stale:
            lines += _wrap("stale", f"{state.stale}; the figures are of the earlier source")
        lines += trajectory_report(state.trajectory)
    return tuple(lines[:_MAX_LINES])


def trajectory_report(trajectory: Trajectory) -> list[str]:
    shown = trajectory.best or trajectory.last
    if trajectory.failure is not None:
        failure = trajectory.failure
        where = f"line {failure.line}: " if failure.line else ""
        lines = _wrap("result", f"{failure.status.replace('_', ' ')}: {where}{failure.message}")
        for row in failure.detail.splitlines()[-_MAX_DETAIL:]:
            lines += [f"{'':{_LABEL}}{row}"[:WIDTH].rstrip()]
        return lines
    if shown is None:
        return _wrap("result", trajectory.reason or "no kernel")
    lines = ["", *verdict_report(shown.verdict)]
    if trajectory.reason and shown.verdict.failure is None:
        lines += _wrap("reason", trajectory.reason)
    lines += [""]
    for turn in trajectory.turns:
        mark = " (best)" if turn is trajectory.best else ""
        lines += _wrap("turns" if turn is trajectory.turns[0] else "", f"{_turn(turn)}{mark}")
    lines += _provenance(trajectory, shown)
    return lines


def verdict_report(verdict: Verdict) -> list[str]:
    lines = _wrap("result", _result(verdict))
    if verdict.failure is not None:
        where = f"line {verdict.failure.line}: " if verdict.failure.line else ""
        lines += _wrap("failure", f"{where}{verdict.failure.message}")
    if verdict.timing is not None and speed_shown(verdict):
        lines += _timing(verdict.timing)
        if verdict.profile is not None:
            lines += profile_report(verdict.profile)
    describe = getattr(verdict.workload, "describe", None)
    if describe is not None:
        lines += _wrap("shapes", describe())
    lines += _wrap("device", f"{verdict.device} (backend {verdict.backend})")
    lines += _wrap("checked", "; ".join(_checked(verdict)) or "nothing")
    if verdict.not_checked:
        lines += _wrap("unchecked", "; ".join(verdict.not_checked))
    if verdict.compile is not None:
        how = "cached" if verdict.compile.cached else f"{verdict.compile.seconds:.2f} s"
        lines += _wrap("compiled", f"{verdict.compile.lane} lane, {how}")
    if verdict.sandbox:
        lines += _wrap("sandbox", _sandbox(verdict.sandbox))
    if verdict.versions:
        named = ", ".join(f"{name} {value}" for name, value in sorted(verdict.versions.items()))
        lines += _wrap("versions", named)
    return lines


def _sandbox(layers: Mapping[str, str]) -> str:
    missing = [f"{name} {how}" for name, how in layers.items() if how != "on"]
    return "; ".join(missing) if missing else f"all {len(layers)} layers"


def _result(verdict: Verdict) -> str:
    if verdict.status != "ok":
        return verdict.status.replace("_", " ")
    if not speed_shown(verdict):
        return "correct; no speed-up is shown"
    return "correct and faster" if verdict.faster else "correct, not faster"


def _timing(timing: Timing) -> list[str]:
    spread = timing.spread

    def row(name: str, milliseconds: float | None, ratio: str, side: str) -> list[str]:
        if milliseconds is None:
            return [f"{'':{_LABEL}}{name:<22}could not run"]
        iqr = f"±{spread[side] * 50:.1f}%" if side in spread else ""
        line = f"{'':{_LABEL}}{name:<22}{milliseconds:>10.4f} ms {iqr:>7}  {ratio}".rstrip()
        if len(line) <= WIDTH:
            return [line]
        return _wrap("", f"{name}: {milliseconds:.4f} ms {iqr} {ratio}")

    mode = f" ({timing.compile_mode})" if timing.compile_mode else ""
    lines = [
        f"{'time':<{_LABEL}}{'side':<22}{'median':>10}    {'spread':>7}  speed-up [95 % CI]",
        *row("kernel", timing.candidate_ms, "", "candidate"),
        *row("eager", timing.eager_ms, _interval(timing.speedup_eager, timing.ci95), "eager"),
        *row(
            f"compile{mode}",
            timing.compile_ms,
            _interval(timing.speedup_compile, timing.ci95_compile),
            "compile",
        ),
    ]
    facts = [f"{timing.samples} samples"]
    if timing.threads is not None:
        facts.append(f"{timing.threads} threads on both sides")
    if not timing.interleaved:
        facts.append("not interleaved")
    facts.extend(timing.notes)
    return [*lines, *_wrap("", "; ".join(facts))]


def profile_report(profile: KernelProfile) -> list[str]:
    """The bottleneck in words, and what it was judged by."""
    lines = _wrap("bottleneck", profile.sentence)
    if profile.bytes_moved is not None and profile.operations is not None:
        moved = amount(profile.bytes_moved, "B")
        text = f"{moved} at least, {amount(profile.operations, 'op')}"
        if profile.operations_per_second is not None:
            text += f" at {amount(profile.operations_per_second, 'op/s')}"
        lines += _wrap("work", text)
    if profile.launches is not None:
        lines += _wrap("launches", f"{profile.launches} a call")
    for place, kernel in enumerate(profile.kernels[:_MAX_KERNELS]):
        lines += _wrap("kernels" if place == 0 else "", kernel_line(kernel))
    for note in profile.notes:
        lines += _wrap("", note)
    return lines


def hint_report(profile: KernelProfile, problem: str | None = None) -> list[str]:
    """What would make it faster; `problem` says why no hardware counters were read."""
    lines = []
    if problem is not None:
        lines += _wrap("counters", problem)
    for place, hint in enumerate(profile.hints, 1):
        lines += _wrap("hints" if place == 1 else "", f"{place}. {hint}")
    return lines


def kernel_line(kernel: ProfiledKernel) -> str:
    """What is known of one device function, such as `f: 3 x 12 us, 32 registers, no spills`."""
    facts = []
    if kernel.launches is not None and kernel.seconds is not None:
        each = duration(kernel.seconds / max(kernel.launches, 1))
        facts.append(f"{kernel.launches} x {each}")
    if kernel.blocks is not None and kernel.threads is not None:
        facts.append(f"{kernel.blocks} blocks of {kernel.threads} threads")
    if kernel.registers is not None:
        facts.append(f"{kernel.registers} registers")
    if kernel.shared_bytes:
        facts.append(f"{kernel.shared_bytes} bytes shared")
    if kernel.spill_bytes is not None:
        facts.append(f"spills {kernel.spill_bytes} bytes" if kernel.spill_bytes else "no spills")
    if kernel.occupancy is not None:
        by = f" ({kernel.occupancy_limiter})" if kernel.occupancy_limiter else ""
        facts.append(f"occupancy {kernel.occupancy:.0%}{by}")
    return f"{kernel.name}: {', '.join(facts) or 'nothing known'}"


def _interval(ratio: float | None, bounds: tuple[float, float] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.2f}x" + (f" [{bounds[0]:.2f}, {bounds[1]:.2f}]" if bounds else "")


def _checked(verdict: Verdict) -> Iterator[str]:
    correctness = verdict.correctness
    if correctness is not None:
        yield _correctness(correctness)
        for probe, outcome in correctness.scope.items():
            yield f"{probe}: {outcome}"
    if verdict.legality is not None:
        yield f"legality: {verdict.legality.verdict}"
        for finding in verdict.legality.findings:
            line = f" (line {finding.line})" if finding.line else ""
            yield f"{severity(verdict.policy, finding)} {finding.rule}: {finding.evidence}{line}"


def _correctness(found: Correctness) -> str:
    text = f"{found.passed_trials} of {found.trials} trials within tolerance, {found.mode} mode"
    if found.max_abs_error is not None:
        text += f", largest error {found.max_abs_error:.2g}"
    if found.failed_check:
        text += f", failed: {found.failed_check}"
    if found.near_miss:
        text += ", a near miss"
    if found.oracle != "strong":
        text += f", oracle {found.oracle}"
    return text


def _turn(turn: Turn) -> str:
    verdict = turn.verdict
    text = f"{turn.number}: {verdict.status.replace('_', ' ')}"
    if verdict.timing is not None and speed_shown(verdict):
        text += f", {verdict.timing.speedup_eager:.2f}x vs eager"
    if verdict.reward is not None:
        text += f", reward {verdict.reward:.3g}"
    return text


def _provenance(trajectory: Trajectory, shown: Turn) -> list[str]:
    provenance = shown.candidate.provenance
    by = author(trajectory, shown) or f"{provenance.engine}, model {provenance.model}"
    if provenance.prompt_version:
        by += f", prompt {provenance.prompt_version}"
    lines = _wrap("written by", by)
    if shown.candidate.path:
        lines += _wrap("file", shown.candidate.path)
    return lines


def _visible(character: str) -> str:
    # A Candidate's own message must not steer the terminal, such as to write over its result.
    return character if character.isprintable() else repr(character)[1:-1]


def _wrap(label: str, text: str) -> list[str]:
    """A labelled paragraph within WIDTH; a long word is broken rather than let stick out."""
    plain = "".join(map(_visible, " ".join(text.split())))
    rows = textwrap.wrap(plain, WIDTH - _LABEL, break_on_hyphens=False) or [""]
    return [f"{label if i == 0 else '':<{_LABEL}}{row}".rstrip() for i, row in enumerate(rows)]
