"""The loop: generate, verify, repair, keep the best. Knows no LSP."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from musacoder_inference.engines.base import (
    BackendName,
    Declined,
    Engine,
    Feedback,
    Generated,
    GenerationRequest,
    Progress,
)
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.policy import condemns
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Failure, Verdict


class StageEventLike(Protocol):
    """What a Verifier reports while it works; see `musacoder_verifier.verifier.StageEvent`."""

    @property
    def stage(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def detail(self) -> Mapping[str, Any]: ...


class VerifierLike(Protocol):
    async def probe(self, reference: Reference) -> Any: ...

    async def export(self, reference: Reference) -> Any: ...

    async def verify(
        self,
        reference: Reference,
        candidate: Candidate,
        options: Any,
        on_stage: Callable[[Any], None],
    ) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Turn:
    number: int
    candidate: Candidate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Trajectory:
    """`reason` says in one sentence why there is no correct kernel, None where there is one.
    `failure` is set where the Reference itself could not be run, so that there was no Turn."""

    turns: tuple[Turn, ...]
    best: Turn | None
    reason: str | None
    engine: str
    model: str | None
    label: str = ""
    retriable: bool = False
    failure: Failure | None = None

    @property
    def last(self) -> Turn | None:
        return self.turns[-1] if self.turns else None


@dataclass(frozen=True, slots=True)
class AssistantOptions:
    """`verify` is handed to the Verifier unchanged. `previous` starts with a repair of that Turn;
    `turns` are those that came before and stay part of the Trajectory."""

    backend: BackendName
    verify: Any
    max_turns: int = 3
    samples: int = 1
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    turns: tuple[Turn, ...] = ()
    previous: Turn | None = None


@dataclass(frozen=True, slots=True)
class Exporting:
    """The operator graph of the Reference is being made."""


@dataclass(frozen=True, slots=True)
class Generating:
    turn: int
    of: int
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Verifying:
    turn: int
    of: int
    stage: str
    state: str
    seconds: float = 0.0
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnEnded:
    turn: Turn


AssistantEvent = Exporting | Generating | Verifying | TurnEnded
OnEvent = Callable[[AssistantEvent], None]
WriteCandidate = Callable[[str, Provenance], Awaitable[Path]]

# Repairing cannot help where the fault is not the Candidate's.
_NOT_THE_CANDIDATE = ("reference_error", "infra_error")


class Assistant:
    """Makes the Turns of one Site. Nothing here blocks; cancelling the task that runs it closes
    the Engine's stream and ends the Verifier's children."""

    def __init__(
        self, engine: Engine, verifier: VerifierLike, write_candidate: WriteCandidate
    ) -> None:
        self._engine = engine
        self._verifier = verifier
        self._write = write_candidate

    async def run(
        self, reference: Reference, options: AssistantOptions, on_event: OnEvent
    ) -> Trajectory:
        """Raises only what `write_candidate` raises, and CancelledError."""
        on_event(Exporting())
        export = await self._verifier.export(reference)
        if export.graph is None:
            # Either the exporter has met its limits, or the user's own code fails.
            failure = (await self._verifier.probe(reference)).failure
            if failure is not None:
                trajectory = self._trajectory(list(options.turns), failure.message)
                return replace(trajectory, failure=failure)
        turns = list(options.turns)
        previous = options.previous
        first = len(turns) + 1
        limit = max(1, min(options.max_turns, self._engine.max_turns))
        declined: str | None = None
        for number in range(first, first + limit):
            request = GenerationRequest(
                reference=reference.source,
                backend=options.backend,
                turn=number,
                samples=options.samples if previous is None else 1,
                graph=export.graph,
                graph_error=export.error,
                previous=previous.candidate.source if previous else None,
                feedback=feedback(previous.verdict) if previous else None,
                options=options.engine_options,
            )
            of = max(first + limit - 1, number)
            made, declined = await self._generate(request, previous, of, on_event)
            if not made:
                break
            for candidate in made:
                turn = await self._verify(reference, candidate, number, of, options, on_event)
                turns.append(turn)
                on_event(TurnEnded(turn))
                if turn.verdict.status in _NOT_THE_CANDIDATE:
                    return self._trajectory(turns, declined)
            if any(turn.verdict.status == "ok" for turn in turns):
                break
            previous = max((turn for turn in turns if turn.number == number), key=promise)
        return self._trajectory(turns, declined)

    async def _generate(
        self,
        request: GenerationRequest,
        previous: Turn | None,
        of: int,
        on_event: OnEvent,
    ) -> tuple[list[Candidate], str | None]:
        on_event(Generating(request.turn, of))
        made: list[Candidate] = []
        stream = self._engine.generate(request)
        async with contextlib.AsyncExitStack() as stack:
            close = getattr(stream, "aclose", None)
            if close is not None:
                stack.push_async_callback(close)
            async for event in stream:
                if isinstance(event, Progress):
                    on_event(Generating(request.turn, of, event))
                elif isinstance(event, Declined):
                    return made, event.reason
                else:
                    made.append(await self._candidate(event, request, previous))
        return made, None if made else f"{self._engine.label} produced no kernel."

    async def _candidate(
        self, generated: Generated, request: GenerationRequest, previous: Turn | None
    ) -> Candidate:
        provenance = Provenance(
            engine=self._engine.name,
            model=generated.model,
            prompt_version=generated.prompt_version,
            sampling=generated.sampling,
            turn=request.turn,
            parent=previous.candidate.key if previous else None,
        )
        path = await self._write(generated.source, provenance)
        return Candidate(generated.source, str(path), provenance)

    async def _verify(
        self,
        reference: Reference,
        candidate: Candidate,
        number: int,
        of: int,
        options: AssistantOptions,
        on_event: OnEvent,
    ) -> Turn:
        def on_stage(event: StageEventLike) -> None:
            on_event(Verifying(number, of, event.stage, event.state, event.seconds, event.detail))

        verdict = await self._verifier.verify(reference, candidate, options.verify, on_stage)
        return Turn(number, candidate, verdict)

    def _trajectory(self, turns: list[Turn], declined: str | None) -> Trajectory:
        best = best_turn(turns)
        written = best or (turns[-1] if turns else None)
        return Trajectory(
            turns=tuple(turns),
            best=best,
            reason=None if best else declined or _why(turns) or "No kernel was produced.",
            engine=self._engine.name,
            model=written.candidate.provenance.model if written else None,
            label=self._engine.label,
            retriable=self._engine.max_turns > 1,
        )


def best_turn(turns: list[Turn] | tuple[Turn, ...]) -> Turn | None:
    """The correct Turn with the highest reward; among equals the faster, then the earlier."""
    correct = [turn for turn in turns if turn.verdict.status == "ok"]
    return max(correct, key=_merit, default=None)


def _merit(turn: Turn) -> tuple[float, float]:
    timing = turn.verdict.timing
    return turn.verdict.reward or 0.0, timing.speedup_eager if timing else 0.0


def promise(turn: Turn) -> tuple[float, int]:
    """Orders failed Turns by how near they came: by reward, then by the stages they passed."""
    return turn.verdict.reward or 0.0, len(turn.verdict.stages)


def feedback(verdict: Verdict) -> Feedback:
    """What a repair prompt needs to know of a Verdict."""
    failure = verdict.failure
    detail = failure.detail if failure else ""
    if not detail and verdict.compile is not None:
        detail = "\n".join(
            f"{item.line}:{item.column}: {item.severity}: {item.message}"
            for item in verdict.compile.diagnostics
            if item.severity == "error"
        )
    if verdict.status == "illegal" and verdict.legality is not None:
        found = "\n".join(
            f"line {finding.line}: {finding.rule}: {finding.evidence}"
            for finding in verdict.legality.findings
            if condemns(verdict.policy, finding)
        )
        detail = f"{detail}\n{found}".strip()
    return Feedback(
        status=verdict.status,
        message=failure.message if failure else verdict.status,
        detail=detail,
        speedup=verdict.timing.speedup_eager if verdict.timing else None,
        hints=verdict.profile.hints if verdict.profile else (),
    )


def with_hand_turn(trajectory: Trajectory, candidate: Candidate, verdict: Verdict) -> Trajectory:
    """The Trajectory after a person's edit of a generated file was verified."""
    last = trajectory.last
    turn = Turn((last.number if last else 0) + 1, candidate, verdict)
    turns = (*trajectory.turns, turn)
    best = best_turn(turns)
    return replace(
        trajectory, turns=turns, best=best, reason=None if best else _why([turn]) or "failed"
    )


def _why(turns: list[Turn]) -> str | None:
    if not turns:
        return None
    verdict = max(turns, key=promise).verdict
    return verdict.failure.message if verdict.failure else f"The kernel ended as {verdict.status}."
