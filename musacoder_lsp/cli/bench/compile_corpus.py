"""`musacoder bench compile --corpus RUN...`: which of the Candidates of others the fast lane takes.

Each Candidate's recorded `load_inline` calls are compiled and linked, never loaded, so that no
device is needed. Every outcome is one JSON line; an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.stages import collect, pair
from musacoder_verifier.stages.compile import compile_requests
from musacoder_verifier.verifier import Verifier, VerifierSettings
from musacoder_verifier.worker import Worker

from musacoder_lsp.cli.bench import layout, lines
from musacoder_lsp.cli.bench.layout import Identifier
from musacoder_lsp.places import cache_folder

KIND = "compile"
Way = Literal["fast", "not fast", "nothing to compile"]
# Nothing of the Reference is needed to import a Candidate that does not name it.
_NO_REFERENCE = Reference("class Model:\n    pass\n")


@dataclass(frozen=True, slots=True)
class Task:
    name: Identifier
    path: Path
    compiled: bool | None  # as recorded; None where no record says


def tasks(runs: Iterable[Path], sample: int | None, seed: int) -> list[Task]:
    """The Candidates of all runs, or `sample` of them drawn with `seed`. Raises Unusable."""
    found: list[Task] = []
    for run in runs:
        records = layout.recorded(run)
        for name, path in layout.candidates(run).items():
            found.append(Task(name, path, _compiled(records.get((name.problem, name.sample)))))
    if sample is None or sample >= len(found):
        return found
    return random.Random(seed).sample(found, sample)


def _compiled(record: layout.Recorded | None) -> bool | None:
    """What a record says about compiling: a kernel that crashed is often recorded as not compiled,
    and a machine that failed says nothing."""
    if record is None:
        return None
    if record.compiled:
        return True
    blamed = "compilation_error" in record.metadata and record.outcome == "not compiled"
    return False if blamed else None


async def measure(
    chosen: Sequence[Task], python: str, backend: str, out: Path | None, jobs: int, timeout: float
) -> list[lines.Line]:
    """A line for each task, those that `out` holds already included."""
    done = {
        str(line["candidate"]): line
        for line in (lines.read([out], KIND) if out is not None and out.exists() else ())
    }
    left = [task for task in chosen if str(task.name) not in done]
    settings = VerifierSettings(python=python, cache_dir=cache_folder(), stage_timeout=timeout)
    turn = asyncio.Semaphore(jobs)
    async with Verifier(settings) as verifier:
        worker = await verifier.worker()

        async def one(task: Task) -> None:
            async with turn:
                body = await _compile(worker, task, backend, timeout)
            line = lines.append(out, KIND, backend, body)
            done[str(task.name)] = line
            print(f"{len(done)}/{len(chosen)} {task.name}: {body['way']}", file=sys.stderr)

        await asyncio.gather(*map(one, left))
    return [done[str(task.name)] for task in chosen]


async def _compile(worker: Worker, task: Task, backend: str, timeout: float) -> dict[str, Any]:
    path = str(task.path)
    candidate = Candidate(task.path.read_text("utf-8", "replace"), path=path)
    body: dict[str, Any] = {"candidate": str(task.name), "compiled_before": task.compiled}
    collected = await collect.collect(
        worker, candidate, pair.reference_spec(_NO_REFERENCE), path=path, timeout=timeout
    )
    if not collected.requests:
        reason = collected.failure.message if collected.failure else collected.lazy
        return {**body, "way": "nothing to compile", "reason": reason}
    outcome = await compile_requests(
        collected.requests, backend=backend, worker_info=worker.info, cache_dir=cache_folder(),
        candidate=candidate, timeout=timeout, lane="fast",
    )  # fmt: skip
    failure = outcome.failure
    way: Way = "fast" if failure is None else "not fast"
    return {
        **body,
        "way": way,
        "seconds": outcome.report.seconds,
        "cached": outcome.report.cached,
        "extensions": len(collected.requests),
        "kernels": len(outcome.report.resources),
        "reason": failure.message if failure else None,
        "detail": failure.detail[:1000] if failure else "",
    }


def summary(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares among those that were recorded as compiling and as not, and the median time."""
    tried = [line for line in measured if line["way"] != "nothing to compile"]
    body: dict[str, Any] = {"tried": len(tried), "nothing_to_compile": len(measured) - len(tried)}
    for name, truth in (("compiling", True), ("not_compiling", False)):
        group = [line for line in tried if line["compiled_before"] is truth]
        fast = sum(line["way"] == "fast" for line in group)
        body[name] = {"count": len(group), "fast": fast}
    seconds = [
        float(line["seconds"]) for line in tried if line["way"] == "fast" and not line["cached"]
    ]
    if seconds:
        ordered = sorted(seconds)
        worst = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        body["fast"] = {"p50_ms": statistics.median(seconds) * 1000, "p99_ms": worst * 1000}
    return body


def run(arguments: argparse.Namespace, python: str) -> int:
    """0 when 97 of 100 that compiled before take the fast lane, and none of the others does."""
    chosen = tasks(arguments.corpus, arguments.sample, arguments.seed)
    measured = asyncio.run(
        measure(chosen, python, arguments.backend, arguments.out, arguments.jobs, arguments.timeout)
    )
    found = summary(measured)
    if arguments.json:
        print(json.dumps({"schema_version": 1, "results": found}))
    else:
        _print(measured, found)
    good, bad = found["compiling"], found["not_compiling"]
    return 0 if good["fast"] >= 0.97 * good["count"] and bad["fast"] == 0 else 1


def _print(measured: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> None:
    for line in measured:
        if line["way"] == "not fast" and line["compiled_before"] is not False:
            print(f"not fast: {line['candidate']}: {line['reason']}")
        elif line["way"] == "fast" and line["compiled_before"] is False:
            print(f"taken, though recorded as not compiling: {line['candidate']}")
    good, bad = found["compiling"], found["not_compiling"]
    print(f"recorded as compiling:     {good['fast']} of {good['count']} take the fast lane")
    print(f"recorded as not compiling: {bad['fast']} of {bad['count']} take the fast lane")
    if "fast" in found:
        print(f"median compile, fast lane: {found['fast']['p50_ms'] / 1000:.2f} s")
