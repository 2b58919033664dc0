"""One attempt at one Verdict: the stages in order, and the facts that they leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from musacoder_verifier import content_key, measurement_lock, probe
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.build_request import Artefact, BuildRequest
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.facts import ALWAYS_UNCHECKED, Facts, OnStage, StageEvent
from musacoder_verifier.policy import legal, may_show_speedup, status
from musacoder_verifier.profile.kernel_profile import ProfiledKernel
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.slots import Company, NeverEmpty, Slots, Visit
from musacoder_verifier.stages import baseline as baselines
from musacoder_verifier.stages import (
    collect,
    correctness,
    device_work,
    figures,
    kernelbench,
    legality,
    native_code,
    pair,
    scope,
    timing,
)
from musacoder_verifier.stages import compile as compiling
from musacoder_verifier.stages import profile as profiling
from musacoder_verifier.stages.side import Deadline, DeviceFull, InfraFault, StageStop, Turns
from musacoder_verifier.verdict import CompileReport, Finding, StageName, StageReport
from musacoder_verifier.worker import Worker, WorkerError

# What others may hold of a device before a lack of memory there is theirs, and how long they get.
_OTHERS_SHARE = 1 / 16
_OTHERS_SECONDS = 30.0
_LOOK_SECONDS = 0.2


class Verification:
    """Runs the stages on a living worker. InfraFault, WorkerError and cancellation pass through."""

    def __init__(
        self,
        worker: Worker,
        settings: VerifierSettings,
        backend: Backend,
        reference: Reference,
        candidate: Candidate,
        options: VerifyOptions,
        on_stage: OnStage,
        slots: Slots,
    ) -> None:
        self.facts = Facts(
            sandbox=worker.info.sandbox if settings.sandbox else {"sandbox": "off: as asked for"}
        )
        self._slots = slots
        self._holds_device = False
        self._worker = worker
        self._settings = settings
        self._backend = backend
        self._reference = reference
        self._candidate = candidate
        self._options = options
        self._on_stage = on_stage
        self._timeout = options.stage_timeout or settings.stage_timeout
        self._path = candidate.path or "<candidate>"
        self._requests: tuple[BuildRequest, ...] = ()
        self._artefacts: tuple[Artefact, ...] = ()
        self._hints: tuple[Finding, ...] = ()

    async def run(self) -> None:
        """All stages, or as many as it takes to know that the Candidate fails."""
        if not await self.build():
            return
        async with self._slots.on_device(self._backend.label, self._wait_for_slot) as visit:
            await self._on_device(visit)

    async def build(self) -> bool:
        """Collect and compile, without a device; False where the Candidate fails there."""
        self.facts.versions.update(content_key.versions(self._worker.info, self._backend))
        self.facts.versions["tf32"] = self._options.tf32
        if self._options.device_inputs:
            self.facts.versions["inputs"] = "made on the device"
        async with self._slots.compiling():
            return await self._collect()

    def _wait_for_slot(self) -> None:
        self._on_stage(StageEvent("correctness", "waiting", detail={"device": self._backend.label}))

    async def _on_device(self, visit: Visit) -> None:
        try:
            try:
                await self._run_pair()
            except DeviceFull as full:
                await self._alone(full, visit)
        except StageStop as stop:
            self.facts.failure = stop.failure
            return
        if self.facts.timing is not None and self._worth_timing():
            baseline = await self._baseline(self.facts.timing.speedup_eager)
            self.facts.timing = figures.compared(self.facts.timing, baseline)

    @contextmanager
    def _stage(self, name: StageName, **known: Any) -> Iterator[dict[str, Any]]:
        """`known` goes along with the event of the start."""
        detail: dict[str, Any] = {}
        start = time.monotonic()
        self._on_stage(StageEvent(name, "started", detail=known))
        try:
            yield detail
        finally:
            seconds = time.monotonic() - start
            self.facts.stages[name] = StageReport(seconds, dict(detail))
            self._on_stage(StageEvent(name, "ended", seconds, dict(detail)))

    async def _collect(self) -> bool:
        with self._stage("collect") as detail:
            collected = await collect.collect(
                self._worker,
                self._candidate,
                pair.reference_spec(self._reference),
                path=self._path,
                timeout=self._timeout,
                sandbox=self._settings.sandbox,
                memory_bytes=self._settings.memory_bytes,
            )
            detail["extensions"] = len(collected.requests)
            if collected.lazy is not None:
                detail["compiled_in"] = collected.lazy
        self._hints = collected.hints
        self._requests = collected.requests
        if collected.failure is not None:
            self.facts.failure = collected.failure
            if collected.diagnostics:
                self.facts.compile = CompileReport("none", 0.0, diagnostics=collected.diagnostics)
            return False
        return await self._compile(collected) if collected.requests else True

    async def _compile(self, collected: collect.Collected) -> bool:
        with self._stage("compile") as detail:
            outcome = await compiling.compile_requests(
                collected.requests,
                backend=self._backend,
                worker_info=self._worker.info,
                cache_dir=self._settings.cache_dir,
                candidate=self._candidate,
                timeout=self._timeout,
                lane=self._options.lane,
            )
            detail["lane"] = outcome.report.lane
            detail["cached"] = outcome.report.cached
        self.facts.compile = outcome.report
        self.facts.failure = outcome.failure
        self._artefacts = tuple(outcome.artefacts)
        return outcome.failure is None

    async def _alone(self, full: DeviceFull, visit: Visit) -> None:
        """Before anybody is blamed for taking too much memory: once more, with the device for this
        verification alone, and the sides one after the other."""
        label = self._backend.label
        self.facts.correctness = self.facts.legality = self.facts.timing = None
        self.facts.not_checked[:] = ALWAYS_UNCHECKED
        turns, company = Turns(), Company()
        try:
            async with (
                self._slots.alone(visit, self._wait_for_slot, company),
                self._device("correctness") as held,
            ):
                if not held:
                    raise InfraFault(
                        f"{label} had no memory left ({full.failure.message}) and was in use for "
                        f"{self._timeout:g} s"
                    )
                taken = await self._others_leave()
                self._holds_device = True
                try:
                    await self._run_pair(turns)
                except StageStop:
                    if not turns.full or not (company.joined or taken > _OTHERS_SHARE):
                        raise
                finally:
                    self._holds_device = False
        except NeverEmpty as error:
            raise InfraFault(
                f"{label} had no memory left ({full.failure.message}), and other verifications "
                "did not leave it"
            ) from error
        if turns.full and company.joined:
            raise InfraFault(
                f"{label} had no memory left ({full.failure.message}) beside other verifications"
            )
        if turns.full and taken > _OTHERS_SHARE:
            raise InfraFault(
                f"{label} has too little memory for {self._path} while other processes hold "
                f"{taken:.0%} of it; try again when they have ended"
            )

    async def _others_leave(self) -> float:
        """The share of the device's memory that others hold, once it is small or waiting for that
        has taken too long: verifications of other windows end soon, others may not."""
        ends = time.monotonic() + min(_OTHERS_SECONDS, self._timeout)
        while (taken := self._backend.memory_in_use() or 0.0) > _OTHERS_SHARE:
            if time.monotonic() > ends:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return taken

    async def _run_pair(self, turns: Turns | None = None) -> None:
        settings, options = self._settings, self._options
        pair_settings = pair.PairSettings(
            device=self._backend.runtime_device,
            threads=settings.thread_count,
            seed=options.seed,
            # Waiting for the device counts too, so this is only the last resort.
            seconds=10.0 * self._timeout,
            sandbox=settings.sandbox,
            memory_bytes=settings.memory_bytes,
            file_bytes=settings.output_file_bytes,
            tf32=options.tf32,
            host_inputs=options.host_inputs,
        )
        async with AsyncExitStack() as stack:
            children = await stack.enter_async_context(
                pair.start(
                    self._worker,
                    self._reference,
                    self._candidate,
                    self._path,
                    self._artefacts,
                    pair_settings,
                    turns,
                )
            )
            outcome = await self._correctness(children)
            await self._legality(outcome)
            if not self._worth_timing():
                return
            if options.timing:
                await self._timing(children, outcome.setup)
            else:
                self.facts.not_checked.append("speed")
            launched: tuple[ProfiledKernel, ...] = ()
            if outcome.evidence.watchable and self.facts.failure is None:
                launched = await self._device_work(children)
            if options.profile and self.facts.failure is None and self.facts.timing is not None:
                await self._profile(children, launched, outcome.evidence.watchable)
            if options.scope and self.facts.failure is None:
                await self._scope(children)

    async def _correctness(self, children: pair.Pair) -> correctness.CorrectnessOutcome:
        with self._stage("correctness") as detail:
            deadline = Deadline.start("correctness", self._timeout)
            setup = await correctness.set_up(children, deadline)
            inputs = setup.reference["inputs"]
            self.facts.workload = probe.workload_of(inputs, self._reference.training)
            outcome = await correctness.check(
                children,
                setup,
                deadline,
                training=self._reference.training,
                like_kernelbench=self._like_kernelbench(),
                planned=self._options.trials,
            )
            if outcome.correctness is not None:
                detail["trials"] = outcome.correctness.trials
                detail["passed"] = outcome.correctness.passed
            if outcome.weak_imposters:
                detail["imposters"] = list(outcome.weak_imposters)
        if outcome.correctness is not None and outcome.correctness.oracle == "weak":
            self.facts.not_checked.append(
                f"speed (these outputs cannot be told from {', '.join(outcome.weak_imposters)})"
            )
        self.facts.correctness = outcome.correctness
        self.facts.failure = outcome.failure
        self.facts.not_checked += outcome.not_checked
        return outcome

    def _like_kernelbench(self) -> kernelbench.Trials | None:
        if self._options.mode != "kernelbench":
            return None
        return kernelbench.Trials(self._options.tolerance)

    async def _legality(self, outcome: correctness.CorrectnessOutcome) -> None:
        with self._stage("legality") as detail:
            native = await native_code.inspect(self._artefacts, self._requests)
            self.facts.legality = legality.judge(
                outcome.evidence,
                self._hints,
                native,
                self.facts.correctness,
                policy=self._options.policy,
                path=self._path,
            )
            if native.not_read is not None:
                self.facts.not_checked.append(f"precision of the device code ({native.not_read})")
            detail["verdict"] = self.facts.legality.verdict

    def _add_findings(self, findings: Sequence[Finding]) -> None:
        if findings and self.facts.legality is not None:
            everything = (*findings, *self.facts.legality.findings)
            verdict = legal(self._options.policy, everything)
            self.facts.legality = replace(self.facts.legality, verdict=verdict, findings=everything)

    async def _device_work(self, children: pair.Pair) -> tuple[ProfiledKernel, ...]:
        """Which kernels the device runs; after timing, because being watched makes it slower."""
        deadline = Deadline.start("legality", self._timeout)
        try:
            work = await device_work.watch(children, deadline)
        except StageStop as stop:
            self.facts.failure = stop.failure
            return ()
        if work.unwatched is not None:
            self.facts.not_checked.append(f"which kernels the device runs ({work.unwatched})")
        own = native_code.kernels_of(self._requests)
        self._add_findings(legality.device_findings(work, own, self._path))
        return work.kernels

    async def _profile(
        self, children: pair.Pair, launched: tuple[ProfiledKernel, ...], watchable: bool
    ) -> None:
        """Why it is as fast as it is; where the device cannot be watched, the host is."""
        timed = self.facts.timing
        assert timed is not None
        resources = self.facts.compile.resources if self.facts.compile is not None else ()
        with self._stage("profile", speedup_eager=timed.speedup_eager) as detail:
            self.facts.profile = await profiling.profile(
                self._worker,
                children,
                self._reference,
                self._backend,
                self._settings,
                self.facts.versions,
                timed,
                profiling.with_resources(launched, resources),
                Deadline.start("profile", self._timeout),
                self._device("profile", speedup_eager=timed.speedup_eager),
                watch_host=not watchable,
            )
            detail["bottleneck"] = self.facts.profile.bottleneck

    def _worth_timing(self) -> bool:
        facts, policy = self.facts, self._options.policy
        state = status(policy, facts.failure, facts.correctness, facts.legality)
        return may_show_speedup(policy, state, facts.correctness, facts.legality)

    async def _timing(self, children: pair.Pair, setup: Mapping[str, Any]) -> None:
        options, settings = self._options, self._settings
        with self._stage("timing") as detail:
            async with self._device("timing") as held:
                if not held:
                    self.facts.not_checked.append(
                        f"speed ({self._backend.label} was in use for {self._timeout:g} s)"
                    )
                    return
                own = (children.reference.child.pid, children.candidate.child.pid)
                outcome = await timing.measure(
                    children,
                    setup,
                    Deadline.start("timing", self._timeout),
                    figures.TimingSettings(
                        options.timing_budget,
                        options.seed,
                        settings.thread_count,
                        self._backend.narrow,
                        children.take_turns,
                    ),
                    self._backend.watch(own),
                )
            detail["samples"] = outcome.timing.samples if outcome.timing is not None else 0
        self.facts.failure = outcome.failure
        self.facts.timing = outcome.timing
        self.facts.not_checked += [f"{what} while timing" for what in outcome.unchecked]
        self._add_findings(outcome.findings)

    @asynccontextmanager
    async def _device(self, stage: StageName, **known: Any) -> AsyncIterator[bool]:
        """Holds the device for a measurement; False where it was in use all the time."""
        if self._holds_device:
            yield True
            return
        device = self._backend.lock_name()
        waited = False

        def waiting() -> None:
            nonlocal waited
            waited = True
            self._on_stage(StageEvent(stage, "waiting", detail={"device": self._backend.label}))

        folder = self._settings.lock_folder
        async with measurement_lock.hold(folder, device, waiting, self._timeout) as held:
            if waited and held:
                self._on_stage(StageEvent(stage, "started", detail=known))
            yield held

    async def _baseline(self, speedup_eager: float) -> figures.Baseline | None:
        """Last, when both children are gone and the other figure is known: compiling is slow."""
        options, settings = self._options, self._settings
        key = content_key.baseline_key(
            self._reference, self._backend, settings.thread_count, self.facts.versions
        )
        known = baselines.read(settings.cache_dir, key)
        if known is not None or not options.compile_baseline:
            return known
        with self._stage("baseline", speedup_eager=speedup_eager) as detail:
            try:
                found = await baselines.measure(
                    self._worker,
                    self._reference,
                    device=self._backend.runtime_device,
                    threads=settings.thread_count,
                    seed=options.seed,
                    tf32=options.tf32,
                    modes=self._backend.compile_modes,
                    versions={
                        name: self.facts.versions.get(name, "")
                        for name in ("torch", "python", "driver", "architecture")
                    },
                    cache_dir=settings.cache_dir,
                    key=key,
                    timeout=options.baseline_timeout,
                    hold=lambda: self._device("baseline", speedup_eager=speedup_eager),
                )
            except WorkerError as error:
                # The Candidate has been judged and timed: that stands.
                found = figures.Baseline(None, None, (f"torch.compile: {error}",))
            detail["mode"] = found.mode
        return found

    async def _scope(self, children: pair.Pair) -> None:
        """Unreported as a stage: it decides nothing."""
        if self.facts.correctness is None:
            return
        try:
            self.facts.correctness = await scope.probe(
                children, self.facts.correctness, self._timeout
            )
        except (StageStop, DeviceFull, InfraFault):
            self.facts.not_checked.append("other shapes and dtypes")
