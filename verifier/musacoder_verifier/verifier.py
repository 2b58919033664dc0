"""Verifier: from a Reference and a Candidate to a Verdict. Owns the runtime worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType

from musacoder_verifier import content_key, policy, probe, reward
from musacoder_verifier.backends import registry
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.facts import Facts, StageEvent
from musacoder_verifier.probe import Export, Probe
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.slots import Slots
from musacoder_verifier.stages import profile as profiling
from musacoder_verifier.stages.side import InfraFault
from musacoder_verifier.verdict import Failure, Verdict
from musacoder_verifier.verification import Verification
from musacoder_verifier.worker import ChildDied, ChildTimeout, Worker, WorkerError

__all__ = ["Export", "Probe", "StageEvent", "Verifier", "VerifierSettings", "VerifyOptions"]

Pair = tuple[Reference, Candidate] | tuple[Reference, Candidate, VerifyOptions]


class Verifier:
    """An async context manager. Verifications may run side by side; timing never does."""

    def __init__(self, settings: VerifierSettings | None = None) -> None:
        """`settings` None: this interpreter, the user's cache folder. ValueError for no slots."""
        self.settings = settings or VerifierSettings()
        self.slots = Slots(self.settings.slots_for_compiling, self.settings.device_slots)
        self._workers: dict[str, Worker] = {}  # by the label of their device
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Verifier:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all workers and everything under them."""
        async with self._starting:
            workers = list(self._workers.values())
            self._workers.clear()
            await asyncio.gather(*(worker.close() for worker in workers))

    async def worker(self, backend: str | None = None) -> Worker:
        """The living worker of a device (None: that of the settings), started or restarted as
        needed. Raises WorkerError, and ValueError for an unknown backend."""
        chosen = registry.backend(backend or self.settings.backend)
        async with self._starting:
            worker = self._workers.get(chosen.label)
            if worker is not None and not worker.alive:
                await worker.close()
                worker = None
            if worker is None:
                worker = await Worker.start(
                    self.settings.python, env=chosen.environment(), access=chosen.access()
                )
                self._workers[chosen.label] = worker
            return worker

    async def probe(self, reference: Reference) -> Probe:
        """Run the user's code once in a child: its Workload, or how it fails."""
        settings = self.settings
        try:
            return await probe.probe(
                await self.worker(),
                reference,
                timeout=settings.stage_timeout,
                sandbox=settings.sandbox,
                memory_bytes=settings.memory_bytes,
            )
        except WorkerError as error:
            return Probe(None, Failure("infra_error", "reference", str(error)))

    async def export(self, reference: Reference) -> Export:
        """The operator graph of the Reference, or one sentence on why there is none."""
        settings = self.settings
        try:
            worker = await self.worker()
            exported = await probe.export(
                worker,
                reference,
                timeout=settings.stage_timeout,
                sandbox=settings.sandbox,
            )
        except WorkerError as error:
            return Export(None, str(error))
        # A later profile of a Candidate needs the same graph.
        key = profiling.work_key(reference, worker.info.torch_version)
        counted = profiling.counted(exported.graph, exported.error)
        await asyncio.to_thread(profiling.keep_work, settings.cache_dir, key, counted)
        return exported

    async def verify(
        self,
        reference: Reference,
        candidate: Candidate,
        options: VerifyOptions | None = None,
        on_stage: Callable[[StageEvent], None] = lambda event: None,
    ) -> Verdict:
        """The Verdict. Never raises for bad input; cancelling the task ends all children.

        A fault of ours or the machine's is tried again `infra_retries` times, with a new worker
        where the old one died; then the Verdict is `infra_error`.
        """
        chosen = options or VerifyOptions()
        started = time.monotonic()
        backend = registry.backend("cpu")
        try:
            backend = registry.backend(chosen.backend)
            if chosen.policy not in policy.POLICIES:
                known = ", ".join(policy.POLICIES)
                raise ValueError(f"there is no policy {chosen.policy}; choose one of: {known}")
            missing = backend.missing()
            if missing is not None:
                raise ValueError(missing)
        except ValueError as error:
            facts = Facts(failure=Failure("infra_error", "collect", str(error)))
            return self._verdict(reference, candidate, chosen, backend, facts, started)
        facts = await self._attempts(reference, candidate, chosen, backend, on_stage)
        return self._verdict(reference, candidate, chosen, backend, facts, started)

    async def build(
        self, reference: Reference, candidate: Candidate, options: VerifyOptions | None = None
    ) -> Facts:
        """Collect and compile only; no device is needed. What is built stays in the cache, so that
        a later verification finds it. Raises ValueError for an unknown backend, and WorkerError."""
        chosen = options or VerifyOptions()
        backend = registry.backend(chosen.backend)
        run = Verification(
            await self.worker(), self.settings, backend, reference, candidate, chosen,
            lambda event: None, self.slots,
        )  # fmt: skip
        try:
            await run.build()
        except (InfraFault, ChildDied, ChildTimeout) as error:
            run.facts.failure = Failure("infra_error", "compile", str(error))
        return run.facts

    async def verify_many(
        self,
        pairs: Iterable[Pair],
        options: VerifyOptions | None = None,
        *,
        at_once: int | None = None,
        on_stage: Callable[[int, StageEvent], None] = lambda index, event: None,
    ) -> AsyncIterator[tuple[int, Verdict]]:
        """Each pair's index and Verdict, in the order in which they end. A pair may bring options
        of its own, such as another device.

        `pairs` is read only as fast as places are free: `at_once` (None: twice the slots for
        compiling) verifications are under way, most of them compiling or waiting for the device.
        Closing the iterator, or cancelling the task that reads it, ends what is under way.
        """
        places = at_once or 2 * self.settings.slots_for_compiling
        waiting = enumerate(pairs)
        running: set[asyncio.Task[tuple[int, Verdict]]] = set()

        async def one(index: int, pair: Pair) -> tuple[int, Verdict]:
            reference, candidate, *own = pair
            chosen = own[0] if own else options
            return index, await self.verify(
                reference, candidate, chosen, lambda event: on_stage(index, event)
            )

        try:
            while True:
                while len(running) < places:
                    following = next(waiting, None)
                    if following is None:
                        break
                    running.add(asyncio.create_task(one(*following)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda item: item.result()[0]):
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _attempts(
        self,
        reference: Reference,
        candidate: Candidate,
        options: VerifyOptions,
        backend: Backend,
        on_stage: Callable[[StageEvent], None],
    ) -> Facts:
        facts = Facts()
        for attempt in range(self.settings.infra_retries + 1):
            try:
                worker = await self.worker(options.backend)
            except WorkerError as error:
                facts.failure = Failure("infra_error", "collect", str(error))
                return facts  # one sentence that says what to do; trying again changes nothing
            unfit = backend.unfit(worker.info) or self._unsafe(worker)
            if unfit is not None:
                facts.failure = Failure("infra_error", "collect", unfit)
                return facts
            run = Verification(
                worker, self.settings, backend, reference, candidate, options, on_stage, self.slots
            )
            facts = run.facts
            try:
                await run.run()
                return facts
            except (InfraFault, WorkerError, ChildDied, ChildTimeout, OSError) as error:
                stage = next(reversed(facts.stages), "collect")
                tries = f" ({attempt + 1} attempts)" if attempt else ""
                facts.failure = Failure("infra_error", stage, f"{error}{tries}")
        return facts

    def _unsafe(self, worker: Worker) -> str | None:
        """One sentence where the settings ask for a whole sandbox and there is none."""
        settings = self.settings
        if not settings.strict_sandbox:
            return None
        if not settings.sandbox:
            return "the strict sandbox is asked for, and the sandbox is switched off"
        missing = {name: how for name, how in worker.info.sandbox.items() if how != "on"}
        if not missing:
            return None
        listed = ", ".join(f"{name} {how}" for name, how in sorted(missing.items()))
        return f"nothing is run: the strict sandbox is asked for, and a layer is missing: {listed}"

    def _verdict(
        self,
        reference: Reference,
        candidate: Candidate,
        options: VerifyOptions,
        backend: Backend,
        facts: Facts,
        started: float,
    ) -> Verdict:
        name = options.policy if options.policy in policy.POLICIES else policy.POLICIES[0]
        state = policy.status(name, facts.failure, facts.correctness, facts.legality)
        shown = policy.may_show_speedup(name, state, facts.correctness, facts.legality)
        timing = facts.timing if shown else None
        legal = facts.legality.verdict if facts.legality is not None else None
        return Verdict(
            status=state,
            policy=name,
            faster=policy.faster(name, state, facts.correctness, facts.legality, timing),
            stages=facts.stages,
            failure=facts.failure,
            compile=facts.compile,
            correctness=facts.correctness,
            legality=facts.legality,
            timing=timing,
            profile=facts.profile if shown else None,
            reward=reward.reward(
                state,
                facts.correctness,
                legal,
                timing.speedup_eager if timing is not None else None,
                self.settings.reward,
            ),
            backend=options.backend,
            device=backend.device_name(),
            workload=facts.workload,
            versions=facts.versions,
            key=content_key.verdict_key(
                reference, candidate, backend, options.mode, facts.versions
            ),
            not_checked=tuple(facts.not_checked),
            wall_seconds=time.monotonic() - started,
            mode=options.mode,
            sandbox=facts.sandbox,
        )
