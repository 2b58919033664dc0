"""Verifies the Candidates of KernelBench's runs: compiling in parallel, one slot for each device.

Results are keyed by content, so that a run that was interrupted, or given only some minutes, goes
on where it stood.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from musacoder_verifier import kernelbench, verdict_json
from musacoder_verifier.backends import registry
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.library import as_candidate, as_reference
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier
from musacoder_verifier.worker import WorkerError

from musacoder_lsp.cli.bench import layout, lines
from musacoder_lsp.cli.bench.layout import Identifier
from musacoder_lsp.cli.options import Unusable

KIND = "candidate"
COMPILE_KIND = "compile"
OnRow = Callable[[lines.Line, int, int], None]  # line, done, of


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. `timed` None: all that are correct, else those alone."""

    dataset: Path
    runs: tuple[Path, ...]
    options: VerifyOptions
    levels: frozenset[int] | None = None
    problems: frozenset[int] | None = None
    sample: int | None = None  # time only so many, drawn by `seed`
    seed: int = 1
    seconds: float | None = None  # begin nothing after so long
    lines: Path | None = None

    @property
    def mode(self) -> str:
        """What kind of results these are, as part of their key."""
        options = self.options
        where = " device-inputs" if options.device_inputs else ""
        return f"{options.mode} {options.policy} {options.tolerance} {options.trials}{where}"


@dataclass(frozen=True, slots=True)
class Item:
    name: Identifier
    reference: Reference
    candidate: Candidate
    timed: bool
    key: str


def items(plan: Plan) -> list[Item]:
    """All Candidates of the plan. Raises Unusable."""
    paths: dict[Identifier, Path] = {}
    for run in plan.runs:
        for name, path in layout.candidates(run).items():
            if plan.levels is not None and name.level not in plan.levels:
                continue
            if plan.problems is not None and name.problem not in plan.problems:
                continue
            paths[name] = path
    timed = _timed(plan, list(paths))
    folders = {level: layout.problems(plan.dataset, level) for level in {n.level for n in paths}}
    references: dict[Path, Reference] = {}
    found = []
    for name, path in paths.items():
        problem = folders[name.level].get(name.problem)
        if problem is None:
            continue  # a run of another edition of the dataset
        if problem not in references:
            references[problem] = as_reference(problem, training=True)
        reference, candidate = references[problem], as_candidate(path)
        key = _key(reference, candidate, plan, name in timed)
        found.append(Item(name, reference, candidate, name in timed, key))
    return found


def _timed(plan: Plan, names: Sequence[Identifier]) -> set[Identifier]:
    """The sample is fixed by the seed and by who takes part, before anything is known of them."""
    if not plan.options.timing:
        return set()
    if plan.sample is None or plan.sample >= len(names):
        return set(names)
    return set(random.Random(plan.seed).sample(names, plan.sample))


def _key(reference: Reference, candidate: Candidate, plan: Plan, timed: bool) -> str:
    device = registry.backend(plan.options.backend).device_name()
    family = registry.split(plan.options.backend)[0]
    parts = [reference.key, candidate.key, family, device, plan.mode, str(timed)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def known(plan: Plan, planned: Sequence[Item], kind: str = KIND) -> dict[str, lines.Line]:
    """Earlier lines for what is planned, by key. What the machine failed at is tried again."""
    if plan.lines is None or not plan.lines.exists():
        return {}
    wanted = {item.key for item in planned}
    return {
        line["key"]: line
        for line in lines.read([plan.lines], kind)
        if line.get("key") in wanted and not _infra(line)
    }


def _infra(line: lines.Line) -> bool:
    body: Mapping[str, Any] = line.get("verdict") or line
    return body.get("status") == "infra_error"


async def run(plan: Plan, settings: VerifierSettings, on_row: OnRow) -> list[lines.Line]:
    """The lines of all items, old and new; fewer where `seconds` ran out. Raises Unusable."""
    labels = _labels(plan.options.backend)
    planned = items(plan)
    before = known(plan, planned)
    missing = [item for item in planned if item.key not in before]
    ends = time.monotonic() + (plan.seconds if plan.seconds is not None else 1e9)
    count = len(before)

    def options_of(index: int) -> VerifyOptions:
        label = labels[index % len(labels)]
        return replace(plan.options, backend=label, timing=missing[index].timed)

    def pairs() -> Iterator[tuple[Reference, Candidate, VerifyOptions]]:
        for index, item in enumerate(missing):
            if time.monotonic() > ends:
                return
            yield item.reference, item.candidate, options_of(index)

    async with Verifier(settings) as verifier:
        async for index, verdict in verifier.verify_many(pairs()):
            item = missing[index]
            count += 1
            line = lines.append(plan.lines, KIND, verdict.device, _body(item, plan, verdict))
            before[item.key] = line
            on_row(line, count, len(planned))
    return [before[item.key] for item in planned if item.key in before]


def _labels(backend: str) -> tuple[str, ...]:
    """The devices to use: the one that is named, or all of its family. Raises Unusable."""
    try:
        missing = registry.backend(backend).missing()
        labels = (backend,) if ":" in backend else registry.devices(backend)
    except ValueError as error:
        raise Unusable(f"{error}.") from error
    if missing is not None or not labels:
        raise Unusable(f"{missing or f'there is no {backend} device here'}.")
    return labels


def _body(item: Item, plan: Plan, verdict: Verdict) -> dict[str, Any]:
    return {
        "key": item.key,
        **asdict(item.name),
        "mode": plan.mode,
        "timed": item.timed,
        "verdict": verdict_json.to_json(verdict),
        "kernelbench": kernelbench.result(verdict),
    }


async def build(plan: Plan, settings: VerifierSettings, on_row: OnRow) -> list[lines.Line]:
    """Compile only, on all cores; what is built stays in the verifier's cache. Raises Unusable."""
    planned = items(plan)
    before = known(plan, planned, COMPILE_KIND)
    missing = [item for item in planned if item.key not in before]
    ends = time.monotonic() + (plan.seconds if plan.seconds is not None else 1e9)
    device = registry.backend(plan.options.backend).device_name()
    waiting = iter(missing)
    count = len(before)

    async with Verifier(settings) as verifier:

        async def worker() -> None:
            nonlocal count
            for item in waiting:
                if time.monotonic() > ends:
                    return
                facts = await verifier.build(item.reference, item.candidate, plan.options)
                failure, report = facts.failure, facts.compile
                body = {
                    "key": item.key,
                    **asdict(item.name),
                    "status": failure.status if failure is not None else "ok",
                    "message": failure.message if failure is not None else "",
                    "lane": report.lane if report is not None else "none",
                    "lane_reason": report.lane_reason if report is not None else None,
                    "seconds": report.seconds if report is not None else None,
                    "cached": report.cached if report is not None else False,
                }
                count += 1
                before[item.key] = lines.append(plan.lines, COMPILE_KIND, device, body)
                on_row(before[item.key], count, len(planned))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(settings.slots_for_compiling, max(1, len(missing)))):
                    group.create_task(worker())
        except* (WorkerError, ValueError) as errors:
            raise Unusable(str(errors.exceptions[0])) from errors
    return [before[item.key] for item in planned if item.key in before]
