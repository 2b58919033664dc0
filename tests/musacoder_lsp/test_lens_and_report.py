"""What a lens and a report say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsp_fakes import verdict
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.verdict import Failure, Verdict

from musacoder_lsp.assistant import Trajectory, Turn
from musacoder_lsp.jobs.job import Job, JobState, JobStatus, SiteKey
from musacoder_lsp.lens import SiteState, lens
from musacoder_lsp.report import WIDTH, report
from musacoder_lsp.sites.site import Site

SITE = Site("function:f", "function", "f", 0, 10, 0, ("tanh", "add"), fingerprint="f")


def judged(found: Verdict, model: str | None = None) -> SiteState:
    turn = Turn(1, Candidate("s", "/w/k.py", Provenance("synth", model)), found)
    best = turn if found.status == "ok" else None
    return SiteState(SITE, trajectory=Trajectory((turn,), best, None, "synth", model))


def running(state: JobState, **changes: object) -> SiteState:
    status = replace(JobStatus(state, 100.0), **changes)  # type: ignore[arg-type]
    return SiteState(SITE, job=Job(SiteKey("d", "s"), "generate", "asked", status))


@pytest.mark.parametrize(
    "state, title",
    [
        (SiteState(SITE), "Generate kernel"),
        (SiteState(replace(SITE, missing=("x", "y"))), "needs shapes: x, y"),
        (running("queued"), "queued"),
        (running("generating"), "generating 01:05"),
        (running("generating", tokens_per_second=43.2), "generating 01:05, 43 tok/s"),
        (running("preparing"), "preparing, once"),
        (running("compiling"), "compiling"),
        (running("checking", turn=2, of=3), "attempt 2/3 · checking"),
        (running("waiting", detail="cpu:0"), "waiting for cpu:0"),
        (running("comparing"), "comparing with torch.compile"),
        (running("comparing", speedup=2.314), "2.31x vs eager · comparing with torch.compile"),
        (running("cancelled"), "Generate kernel"),
        (judged(verdict()), "2.31x vs eager · 1.12x vs compile · synth, no model"),
        (judged(verdict(), "9b"), "2.31x vs eager · 1.12x vs compile"),
        (judged(verdict(speedup=0.7), "9b"), "correct, slower 0.70x"),
        (
            judged(verdict(speedup=1.01), "9b"),
            "correct, same speed: 1.01x vs eager · 1.12x vs compile",
        ),
        (judged(verdict(timing=None), "9b"), "correct, not timed"),
        (judged(verdict("compile_error"), "9b"), "failed: compile error"),
        (
            judged(verdict("timeout", failure=Failure("timeout", "correctness", "x")), "9b"),
            "failed: timeout in correctness",
        ),
        (
            replace(judged(verdict()), stale="changed"),
            "stale (was 2.31x vs eager · 1.12x vs compile)",
        ),
        (SiteState(SITE, problem="The disk is full."), "failed: The disk is full."),
    ],
)
def test_titles(state: SiteState, title: str) -> None:
    assert lens(state, 165.0).title == title


@pytest.mark.parametrize("part, value", [("legality", "unknown"), ("correctness", "weak")])
def test_no_figure_without_its_conditions(part: str, value: str) -> None:
    """Legality unknown, or a weak oracle: correct, but no speed-up is shown anywhere."""
    good = verdict()
    if part == "legality":
        assert good.legality is not None
        found = replace(good, legality=replace(good.legality, verdict=value))
    else:
        assert good.correctness is not None
        found = replace(good, correctness=replace(good.correctness, oracle=value))
    state = judged(found, "9b")
    assert lens(state, 0.0).title.startswith("correct, no figure")
    assert "2.31x" not in "\n".join(report(state, 0.0))


@given(st.text(min_size=1, max_size=300), st.text(max_size=200), st.floats(0.001, 1e6))
def test_a_report_is_narrow_whatever_it_says(name: str, message: str, speedup: float) -> None:
    failed = verdict(
        "runtime_error", failure=Failure("runtime_error", "correctness", message, "", None, 3)
    )
    for found in (verdict(speedup=speedup), failed):
        state = replace(judged(found), site=replace(SITE, name=name), stale="it changed")
        lines = report(state, 0.0)
        assert all(len(line) <= WIDTH and "\n" not in line for line in lines)


@pytest.mark.parametrize("hidden", ["\x1b[2K\x1b[1A", "\x07", "\x9b2J", "\u202e", "\ud800"])
def test_a_message_cannot_steer_the_terminal(hidden: str) -> None:
    failure = Failure("runtime_error", "correctness", f"no {hidden}ok é漢🙂", "", None, 3)
    text = "".join(report(judged(verdict("runtime_error", failure=failure)), 0.0))
    assert not any(character in text for character in hidden if not character.isprintable())
    assert "é漢🙂" in text
    assert "ok" in text
