"""The loop: generate, verify, repair, keep the best."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lsp_fakes import FakeEngine, FakeVerifier, verdict
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Finding, Legality

from musacoder_lsp.assistant import (
    Assistant,
    AssistantEvent,
    AssistantOptions,
    Turn,
    TurnEnded,
    best_turn,
    feedback,
    with_hand_turn,
)

REFERENCE = Reference("class Model: ...\n")


async def write(text: str, provenance: Provenance) -> Path:
    return Path(f"/k{provenance.turn}.py")


def assistant(engine: FakeEngine, verifier: FakeVerifier) -> Assistant:
    return Assistant(engine, verifier, write)


async def test_repair_gets_the_words_of_the_failure() -> None:
    engine = FakeEngine(name="openai", max_turns=3, model="m")
    verifier = FakeVerifier("repairable")
    events: list[AssistantEvent] = []
    found = await assistant(engine, verifier).run(
        REFERENCE, AssistantOptions("cpu", None), events.append
    )
    assert [turn.verdict.status for turn in found.turns] == ["compile_error", "ok"]
    assert found.best is found.turns[1] and found.reason is None and found.model == "m"
    second = engine.requests[1]
    assert second.previous == found.turns[0].candidate.source and second.turn == 2
    assert second.feedback is not None and second.feedback.status == "compile_error"
    assert found.turns[1].candidate.provenance.parent == found.turns[0].candidate.key
    assert sum(isinstance(event, TurnEnded) for event in events) == 2


@pytest.mark.parametrize("of_engine, of_user, turns", [(1, 3, 1), (3, 2, 2), (9, 3, 3)])
async def test_turns_end_at_the_smaller_limit(of_engine: int, of_user: int, turns: int) -> None:
    engine = FakeEngine(max_turns=of_engine)
    options = AssistantOptions("cpu", None, max_turns=of_user)
    found = await assistant(engine, FakeVerifier("compile_error")).run(
        REFERENCE, options, lambda _: None
    )
    assert len(found.turns) == turns and found.best is None
    assert found.reason == "the kernel ended as compile_error"


@pytest.mark.parametrize("status", ["reference_error", "infra_error"])
async def test_what_is_not_the_candidates_fault_is_not_repaired(status: str) -> None:
    verifier = FakeVerifier()
    verifier.outcomes = [status]  # type: ignore[list-item]
    found = await assistant(FakeEngine(max_turns=3), verifier).run(
        REFERENCE, AssistantOptions("cpu", None), lambda _: None
    )
    assert len(found.turns) == 1


async def test_declined_keeps_the_engines_reason() -> None:
    found = await assistant(FakeEngine("declined"), FakeVerifier()).run(
        REFERENCE, AssistantOptions("cpu", None), lambda _: None
    )
    assert found.turns == () and found.reason == "conv2d is not covered by synth"


async def test_a_failing_reference_is_found_before_any_turn() -> None:
    engine = FakeEngine()
    found = await assistant(engine, FakeVerifier("reference_error")).run(
        REFERENCE, AssistantOptions("cpu", None), lambda _: None
    )
    assert engine.requests == [] and found.failure is not None and found.failure.line == 7


async def test_cancel_closes_the_engines_stream() -> None:
    closed = asyncio.Event()
    begun = asyncio.Event()

    class Endless(FakeEngine):
        async def generate(self, request):  # type: ignore[no-untyped-def, override]
            try:
                begun.set()
                await asyncio.Event().wait()
                yield
            finally:
                closed.set()

    work = asyncio.create_task(
        assistant(Endless(), FakeVerifier()).run(
            REFERENCE, AssistantOptions("cpu", None), lambda _: None
        )
    )
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert closed.is_set()


def turn(number: int, status: str, reward: float, speedup: float = 1.5) -> Turn:
    found = verdict(status, reward=reward, speedup=speedup)  # type: ignore[arg-type]
    return Turn(number, Candidate(str(number)), found)


def test_the_best_turn_counts_never_simply_the_last() -> None:
    fast, slow, failed = turn(1, "ok", 2.0), turn(2, "ok", 1.0), turn(3, "wrong_result", 9.0)
    assert best_turn([fast, slow, failed]) is fast
    assert best_turn([failed]) is None
    same = [turn(1, "ok", 1.0, 1.2), turn(2, "ok", 1.0, 1.9), turn(3, "ok", 1.0, 1.9)]
    assert best_turn(same) is same[1]


async def test_a_hand_edit_becomes_a_turn() -> None:
    found = await assistant(FakeEngine(), FakeVerifier("compile_error")).run(
        REFERENCE, AssistantOptions("cpu", None), lambda _: None
    )
    edited = with_hand_turn(found, Candidate("x", None, Provenance("hand")), verdict())
    assert edited.best is edited.turns[1] and edited.turns[1].number == 2
    assert edited.reason is None


def test_feedback_names_violations() -> None:
    finding = Finding("library_call", "calls at::softmax", 12)
    found = feedback(verdict("illegal", legality=Legality("fail", (finding,))))
    assert "line 12: library_call: calls at::softmax" in found.detail
