"""What a Job does: build the Reference, run the Assistant, keep what comes out."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from musacoder_inference.engines.base import BackendName
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.reference import Reference

from musacoder_lsp import __version__
from musacoder_lsp.analysis.client import AnalysisClient, AnalysisFailed
from musacoder_lsp.analysis.messages import BuildReference
from musacoder_lsp.assistant import (
    Assistant,
    AssistantEvent,
    AssistantOptions,
    Exporting,
    Generating,
    Turn,
    TurnEnded,
    Verifying,
    with_hand_turn,
)
from musacoder_lsp.interpreter import NoInterpreter, find_interpreter
from musacoder_lsp.jobs.job import Job, JobState, JobStatus
from musacoder_lsp.jobs.makers import Makers
from musacoder_lsp.jobs.results import KnownResult, ResultBook
from musacoder_lsp.jobs.store import GeneratedFile
from musacoder_lsp.jobs.verifiers import VerifierPool
from musacoder_lsp.places import CannotWrite, Place, generated_place, write_generated
from musacoder_lsp.settings import Settings
from musacoder_lsp.sites.site import Refused, Site

_STAGE_STATES: Mapping[str, JobState] = {
    "prepare": "preparing",
    "collect": "checking",
    "compile": "compiling",
    "correctness": "checking",
    "legality": "checking",
    "timing": "timing",
    "profile": "timing",
    "baseline": "comparing",
}


@dataclass(frozen=True, slots=True)
class Order:
    """Everything that a Job needs to know. `source` names the document in the store: its path, or
    its URI where it has none. `site` is an id, or the offsets of a selection."""

    document: str
    source: str
    path: str | None
    folder: Path | None
    roots: tuple[Path, ...]
    settings: Settings
    site: str | tuple[int, int]
    repair: bool = False
    edited: GeneratedFile | None = None
    edited_text: str = ""


class CannotWork(Exception):
    """One sentence that says why the Job ends without a Trajectory."""


@dataclass(frozen=True, slots=True)
class WorkEvents:
    """`found` is called once the Site is known, `kept` after each result."""

    update: Callable[[Job, JobStatus], None]
    found: Callable[[Order, Site], None]
    kept: Callable[[Order, KnownResult], None]
    wrote: Callable[[Order, Place], None]
    note: Callable[[str], None]


class Work:
    def __init__(
        self,
        makers: Makers,
        analysis: AnalysisClient,
        results: ResultBook,
        events: WorkEvents,
        clock: Callable[[], float],
        environment: Mapping[str, str],
    ) -> None:
        self._makers = makers
        self._analysis = analysis
        self._results = results
        self._events = events
        self._clock = clock
        self._environment = environment
        self.verifiers = VerifierPool(makers)

    async def run(self, job: Job, order: Order) -> JobStatus:
        """Never raises for what a user can cause; the status that it returns ends the Job."""
        try:
            if order.edited is not None:
                result = await self._verify_edited(job, order, order.edited)
            else:
                result = await self._generate(job, order)
        except (CannotWork, CannotWrite, NoInterpreter, AnalysisFailed) as problem:
            return replace(job.status, state="failed", since=self._clock(), detail=str(problem))
        trajectory = result.trajectory
        state: JobState = "done" if trajectory.best is not None else "failed"
        return replace(job.status, state=state, since=self._clock(), detail=trajectory.reason or "")

    async def _generate(self, job: Job, order: Order) -> KnownResult:
        self._events.update(job, replace(job.status, state="generating", since=self._clock()))
        site, reference = await self._reference(order)
        self._events.found(order, site)
        before = self._results.find(order.source, site.id, site.fingerprint)
        turns: tuple[Turn, ...] = ()
        previous: Turn | None = None
        if order.repair:
            if before is None or before.fingerprint != site.fingerprint:
                raise CannotWork(
                    "There is no attempt on the present source that could be repaired."
                )
            turns = before.trajectory.turns
            previous = before.trajectory.last
        engine = self._engine(order.settings)
        if order.repair and engine.max_turns < 2:
            raise CannotWork(f"{engine.label} always writes the same kernel and cannot repair it.")
        python = find_interpreter(order.settings.python, order.folder, self._environment)
        try:
            verifier = await self.verifiers.get(python.path, order.settings)
        except Exception as problem:
            raise CannotWork(f"{problem} (Interpreter {python.path}, from {python.origin}.)") from (
                problem
            )
        place = generated_place(order.folder)
        if place.note:
            self._events.note(place.note)

        async def write(text: str, provenance: Provenance) -> Path:
            path = write_generated(place, order.path, f"{site.name}_{order.settings.family}", text)
            await self._remember_file(order, site, path, text)
            self._events.wrote(order, place)
            return path

        options = AssistantOptions(
            backend=cast(BackendName, order.settings.family),
            verify=self._makers.options(order.settings),
            max_turns=1 if order.repair else order.settings.max_turns,
            samples=order.settings.samples,
            engine_options=order.settings.engine_options,
            turns=turns,
            previous=previous,
        )
        assistant = Assistant(engine, verifier, write)
        identity = result_identity(order.settings, python.path)
        trajectory = await assistant.run(reference, options, self._follow(job))
        if trajectory.failure is not None and trajectory.failure.status == "infra_error":
            raise CannotWork(
                f"{trajectory.failure.message} (Interpreter {python.path}, from {python.origin}.)"
            )
        result = KnownResult(
            site=site.id,
            backend=order.settings.backend,
            fingerprint=site.fingerprint,
            identity=identity,
            reference=reference,
            trajectory=trajectory,
            saved=time.time(),
        )
        await self._keep(order, result)
        return result

    async def _verify_edited(self, job: Job, order: Order, edited: GeneratedFile) -> KnownResult:
        """A person's edit of a generated file, against the Reference that it was made for."""
        await self._results.load(order.folder, order.source, order.settings.backend)
        before = self._results.find(order.source, edited.site, edited.fingerprint)
        if before is None or before.fingerprint != edited.fingerprint:
            raise CannotWork(f"{edited.path} belongs to no result that is still known.")
        python = find_interpreter(order.settings.python, order.folder, self._environment)
        try:
            verifier = await self.verifiers.get(python.path, order.settings)
        except Exception as problem:
            raise CannotWork(f"{problem} (Interpreter {python.path}, from {python.origin}.)") from (
                problem
            )
        parent = before.trajectory.last
        number = (parent.number if parent else 0) + 1
        candidate = Candidate(
            order.edited_text,
            edited.path,
            Provenance("hand", turn=number, parent=parent.candidate.key if parent else None),
        )
        follow = self._follow(job)
        verdict = await verifier.verify(
            before.reference,
            candidate,
            self._makers.options(order.settings),
            lambda event: follow(
                Verifying(1, 1, event.stage, event.state, event.seconds, event.detail)
            ),
        )
        result = replace(
            before,
            trajectory=with_hand_turn(before.trajectory, candidate, verdict),
            identity=result_identity(order.settings, python.path),
            saved=time.time(),
        )
        await self._keep(order, result)
        return result

    async def _reference(self, order: Order) -> tuple[Site, Reference]:
        roots = tuple(str(root) for root in order.roots)
        answer = await self._analysis.ask(BuildReference(order.document, order.site, roots))
        if isinstance(answer.result, Refused):
            raise CannotWork(answer.result.reason)
        site, built = cast(tuple[Site, Any], answer.result)
        if not isinstance(built, Reference):
            missing = f" (missing: {', '.join(built.missing)})" if built.missing else ""
            raise CannotWork(f"{built.reason}{missing}")
        return site, built

    def _engine(self, settings: Settings) -> Any:
        try:
            return self._makers.engine(settings)
        except (ValueError, ImportError) as problem:
            raise CannotWork(f"The engine {settings.engine} cannot be used: {problem}") from problem

    def _follow(self, job: Job) -> Callable[[AssistantEvent], None]:
        begun = self._clock()

        def on_event(event: AssistantEvent) -> None:
            status = job.status
            if isinstance(event, Exporting):
                status = replace(status, state="generating", since=begun)
            elif isinstance(event, Generating):
                since = status.since if status.state == "generating" else self._clock()
                rate = event.progress.tokens_per_second if event.progress else None
                status = JobStatus(
                    "generating", since, event.turn, event.of, tokens_per_second=rate
                )
            elif isinstance(event, TurnEnded):
                return
            elif event.state != "ended":
                status = _verifying(event, self._clock())
            self._events.update(job, status)

        return on_event

    async def _remember_file(self, order: Order, site: Site, path: Path, text: str) -> None:
        file = GeneratedFile(
            path=str(path),
            digest=text_digest(text),
            source_path=order.source,
            site=site.id,
            backend=order.settings.backend,
            fingerprint=site.fingerprint,
        )
        await self._results.save_generated(order.folder, file)

    async def _keep(self, order: Order, result: KnownResult) -> None:
        await self._results.save(order.folder, order.source, result)
        if order.edited is not None:
            file = replace(order.edited, digest=text_digest(order.edited_text))
            await self._results.save_generated(order.folder, file)
        self._events.kept(order, result)


def _verifying(event: Verifying, now: float) -> JobStatus:
    state = _STAGE_STATES.get(event.stage, "checking")
    detail = ""
    if event.state == "waiting":
        state = "waiting"
        detail = str(event.detail.get("device") or event.detail.get("for") or event.stage)
    elif event.detail.get("preparing"):
        state = "preparing"
    speedup = event.detail.get("speedup_eager")
    return JobStatus(state, now, event.turn, event.of, detail, speedup=speedup)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def result_identity(settings: Settings, python: str) -> str:
    """What a figure depends on besides the source: when it changes the figure is stale."""
    parts: Sequence[object] = (__version__, settings.backend, settings.policy, python)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
