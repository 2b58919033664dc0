"""`musacoder bench compile`: what the fast lane saves, on Candidates that the engine synth writes.

Each source is compiled in both lanes, with no cache entry of its own. Preparing the fast lane, once
per machine, is reported apart.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import statistics
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from musacoder_inference.engines.base import Declined, Generated, GenerationRequest
from musacoder_inference.registry import engine
from musacoder_verifier.build_request import BuildRequest
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.stages import collect, pair
from musacoder_verifier.stages.compile import Lane, compile_requests
from musacoder_verifier.verifier import Verifier, VerifierSettings
from musacoder_verifier.worker import Worker, WorkerError

from musacoder_lsp.cli.bench import call_overhead, compile_corpus
from musacoder_lsp.cli.bench.call_overhead import CallOverhead
from musacoder_lsp.cli.bench.compile_references import REFERENCES
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.interpreter import NoInterpreter, find_interpreter
from musacoder_lsp.places import cache_folder

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_TIMEOUT = 600.0
_PATH = "<candidate>"


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("compile", help="how long Candidates compile in either lane")
    parser.add_argument("--count", type=int, default=20, help="how many sources (default: 20)")
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has torch")
    parser.add_argument(
        "--stock", type=int, metavar="N", help="only N of them in the stock lane too: it is slow"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    corpus = parser.add_argument_group("the Candidates of others")
    corpus.add_argument(
        "--corpus", metavar="RUN", type=Path, nargs="+",
        help="folders of KernelBench runs: which of their Candidates the fast lane takes",
    )  # fmt: skip
    corpus.add_argument("--backend", default="cuda", help="what to compile for (default: cuda)")
    corpus.add_argument("--sample", type=int, metavar="N", help="N of them, drawn at random")
    corpus.add_argument("--seed", type=int, default=0, help="for --sample (default: 0)")
    corpus.add_argument(
        "--out", type=Path, metavar="FILE", help="JSON lines to add to, and go on from"
    )
    corpus.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    corpus.add_argument("--timeout", type=float, default=_TIMEOUT, help="seconds for one of them")
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Measured:
    """One source; seconds, None where a lane was not measured or failed."""

    name: str
    fast: float | None
    stock: float | None
    problem: str | None = None


def run(arguments: argparse.Namespace) -> int:
    """0 when every source compiled in the fast lane, 1 when one did not, 2 without torch."""
    try:
        interpreter = find_interpreter(arguments.python, Path.cwd(), os.environ)
        if arguments.corpus:
            return compile_corpus.run(arguments, interpreter.path)
        prepare, measured, call = asyncio.run(
            _measure(interpreter.path, arguments.count, arguments.stock)
        )
    except (NoInterpreter, WorkerError, Unusable) as problem:
        print(problem, file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(_as_json(prepare, measured, call)))
    else:
        _print_table(prepare, measured)
        if call is not None:
            print(call_overhead.text(call))
    return 0 if measured and all(item.problem is None for item in measured) else 1


async def _measure(
    python: str, count: int, stock: int | None
) -> tuple[float, list[Measured], CallOverhead | str | None]:
    """Seconds of preparing, the sources, and what a call costs where stock is measured too."""
    settings = VerifierSettings(python=python, cache_dir=cache_folder(), stage_timeout=_TIMEOUT)
    measured: list[Measured] = []
    async with Verifier(settings) as verifier:
        worker = await verifier.worker()
        warm = BuildRequest("warm", _marked(_plain_source()))
        prepare, problem = await _time(worker, warm, "fast")
        if problem is not None:
            print(problem, file=sys.stderr)
        chosen = list(REFERENCES.items())[:count]
        # Spread over the list, which goes from simple to involved.
        step = max(1, len(chosen) // stock) if stock else 1
        for place, (name, text) in enumerate(chosen):
            print(f"{name} ...", file=sys.stderr)
            reference = Reference(text)
            request = await _request(verifier, worker, reference)
            if isinstance(request, str):
                measured.append(Measured(name, None, None, request))
                continue
            fast, problem = await _time(worker, request, "fast")
            slow = None
            if stock != 0 and place % step == 0 and problem is None:
                slow, problem = await _time(worker, request, "stock")
            measured.append(Measured(name, fast, slow, problem))
        call = await call_overhead.measure(worker.info, cache_folder()) if stock != 0 else None
    return prepare or 0.0, measured, call


async def _request(verifier: Verifier, worker: Worker, reference: Reference) -> BuildRequest | str:
    """What synth's Candidate for a Reference asks to be compiled, or why there is none."""
    exported = await verifier.export(reference)
    wanted = GenerationRequest(
        reference.source, "cpu", graph=exported.graph, graph_error=exported.error
    )
    async for event in engine("synth").generate(wanted):
        if isinstance(event, Declined):
            return event.reason
        if isinstance(event, Generated):
            collected = await collect.collect(
                worker, Candidate(event.source), pair.reference_spec(reference),
                path=_PATH, timeout=_TIMEOUT,
            )  # fmt: skip
            if collected.failure is not None:
                return collected.failure.message
            if len(collected.requests) == 1:
                return collected.requests[0]
            return f"the Candidate asks for {len(collected.requests)} extensions"
    return "synth gave no Candidate"


async def _time(
    worker: Worker, request: BuildRequest, lane: Lane
) -> tuple[float | None, str | None]:
    fresh = dataclasses.replace(request, sources=_marked(request))
    outcome = await compile_requests(
        [fresh], backend="cpu", worker_info=worker.info, cache_dir=cache_folder(),
        candidate=Candidate("", path=_PATH), timeout=_TIMEOUT, lane=lane,
    )  # fmt: skip
    if outcome.failure is not None:
        return None, outcome.failure.message
    return outcome.report.seconds, None


def _plain_source() -> BuildRequest:
    from musacoder_verifier.build_request import SourceText

    text = "int one() { return 1; }\n"
    return BuildRequest("warm", (SourceText("cpp", text),), (("one", "one"),))


def _marked(request: BuildRequest) -> Any:
    """The sources with a comment that no cache has seen."""
    return tuple(
        dataclasses.replace(source, text=f"{source.text}\n// {uuid.uuid4().hex}\n")
        for source in request.sources
    )


def _medians(measured: list[Measured]) -> Iterator[tuple[str, list[float]]]:
    for lane in ("fast", "stock"):
        values = [getattr(item, lane) for item in measured]
        yield lane, [value for value in values if value is not None]


def _as_json(
    prepare: float, measured: list[Measured], call: CallOverhead | str | None
) -> dict[str, Any]:
    results: dict[str, Any] = {"prepare": {"p50_ms": prepare * 1000, "count": 1}}
    medians: dict[str, float] = {}
    for lane, values in _medians(measured):
        if values:
            medians[lane] = statistics.median(values)
            worst = sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
            results[lane] = {
                "p50_ms": medians[lane] * 1000,
                "p99_ms": worst * 1000,
                "count": len(values),
            }
    if isinstance(call, CallOverhead):
        results["call"] = dataclasses.asdict(call)
    if len(medians) == 2:
        results["ratio"] = {"stock_over_fast": medians["stock"] / medians["fast"]}
    return {
        "schema_version": 1,
        "machine": {"cpu": platform.machine(), "cores": os.cpu_count()},
        "results": results,
        "sources": [dataclasses.asdict(item) for item in measured],
    }


def _print_table(prepare: float, measured: list[Measured]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("source", "fast s", "stock s", box=None, pad_edge=False)
    for item in measured:
        cells = [f"{value:.2f}" if value is not None else "-" for value in (item.fast, item.stock)]
        table.add_row(item.name, *cells, item.problem or "")
    medians = {lane: statistics.median(values) for lane, values in _medians(measured) if values}
    table.add_row(
        "median",
        *(f"{medians[lane]:.2f}" if lane in medians else "-" for lane in ("fast", "stock")),
    )
    console = Console(highlight=False)
    console.print(table)
    if len(medians) == 2:
        console.print(f"stock / fast: {medians['stock'] / medians['fast']:.1f}")
    console.print(f"first compile, with preparation where it was missing: {prepare:.1f} s")
