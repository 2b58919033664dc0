"""`musacoder bench timing`: would the verifier say the same again?

Each kernel of synth's is verified many times. The coefficient of variation of its speed-up says how
well a figure repeats; the share of short runs whose 95 % interval holds the long-run value says
whether the interval promises what it keeps. The long-run value is the median of all runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from musacoder_inference.engines.base import BackendName, Declined, Generated, GenerationRequest
from musacoder_inference.registry import engine
from musacoder_verifier.backends import registry
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifierSettings, VerifyOptions
from musacoder_verifier.worker import WorkerError

from musacoder_lsp.interpreter import NoInterpreter, find_interpreter
from musacoder_lsp.places import cache_folder

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_TIMEOUT = 300.0
_SHORT_BUDGET = 0.3  # seconds of samples of a run that only its interval is asked of

_FORM = """import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

# (body, inputs) by name; the sizes are for a device of the family.
_KERNELS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "cpu": {
        "relu": ("torch.relu(x)", ("1024, 4096",)),
        "softmax": ("torch.softmax(x, dim=-1)", ("512, 2048",)),
        "gelu of a sum": ("F.gelu(x + y)", ("512, 4096", "512, 4096")),
    },
    "cuda": {
        "relu": ("torch.relu(x)", ("8192, 8192",)),
        "softmax": ("torch.softmax(x, dim=-1)", ("4096, 8192",)),
        "gelu of a sum": ("F.gelu(x + y)", ("4096, 8192", "4096, 8192")),
        "small relu": ("torch.relu(x)", ("64, 1024",)),
    },
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("timing", help="how well figures repeat, and their intervals")
    parser.add_argument("--backend", default="cpu", help="cpu, cuda, cuda:1 (default: cpu)")
    parser.add_argument("--runs", type=int, default=20, help="full runs a kernel (default: 20)")
    parser.add_argument(
        "--short-runs", type=int, default=100, metavar="N",
        help="short runs of the first kernel, for its intervals (default: 100)",
    )  # fmt: skip
    parser.add_argument("--kernels", type=int, metavar="N", help="only the first N kernels")
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has torch")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Repeated:
    """`variation` is the coefficient of variation of the speed-up over `runs` runs; `covered` of
    `intervals` 95 % intervals hold the median of them all."""

    kernel: str
    runs: int
    candidate_us: float
    speedup: float
    variation: float
    covered: int
    intervals: int
    seconds: float  # median wall time of one Verdict
    problem: str | None = None


def run(arguments: argparse.Namespace) -> int:
    """0 when every kernel could be timed, 1 when one could not, 2 without a device or torch."""
    try:
        interpreter = find_interpreter(arguments.python, Path.cwd(), os.environ)
        backend = registry.backend(arguments.backend)
        missing = backend.missing()
        if missing is not None:
            raise ValueError(missing)
        results = asyncio.run(_measure(interpreter.path, arguments))
    except (NoInterpreter, WorkerError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 2
    if arguments.json:
        body = {
            "schema_version": 1,
            "machine": {"device": backend.device_name(), **backend.versions()},
            "results": {item.kernel: asdict(item) for item in results},
        }
        print(json.dumps(body))
    else:
        _print(results)
    return 0 if all(item.problem is None for item in results) else 1


async def _measure(python: str, arguments: argparse.Namespace) -> list[Repeated]:
    family = registry.split(arguments.backend)[0]
    kernels = list(_KERNELS[family].items())[: arguments.kernels]
    settings = VerifierSettings(
        python=python, backend=arguments.backend, cache_dir=cache_folder(), stage_timeout=_TIMEOUT
    )
    results = []
    async with Verifier(settings) as verifier:
        for place, (name, (body, shapes)) in enumerate(kernels):
            reference = Reference(_source(body, shapes))
            written = await _write(verifier, reference, family)
            if isinstance(written, str):
                results.append(_failed(name, written))
                continue
            long = await _runs(verifier, reference, written, arguments, arguments.runs, None)
            short: list[Verdict] = []
            if place == 0:
                count = arguments.short_runs
                short = await _runs(verifier, reference, written, arguments, count, _SHORT_BUDGET)
            results.append(summary(name, long, short))
    return results


def _source(body: str, shapes: Sequence[str]) -> str:
    return _FORM.format(
        names=", ".join(("x", "y", "z")[: len(shapes)]),
        body=body,
        inputs=", ".join(f"torch.randn({shape})" for shape in shapes),
    )


async def _write(verifier: Verifier, reference: Reference, family: str) -> Candidate | str:
    """synth's Candidate, or why there is none."""
    exported = await verifier.export(reference)
    backend: BackendName = "cuda" if family == "cuda" else "cpu"
    request = GenerationRequest(
        reference.source, backend, graph=exported.graph, graph_error=exported.error
    )
    async for event in engine("synth").generate(request):
        if isinstance(event, Declined):
            return event.reason
        if isinstance(event, Generated):
            return Candidate(event.source)
    return "synth wrote nothing"


async def _runs(
    verifier: Verifier,
    reference: Reference,
    candidate: Candidate,
    arguments: argparse.Namespace,
    count: int,
    budget: float | None,
) -> list[Verdict]:
    options = VerifyOptions(
        backend=arguments.backend, scope=False, profile=False, compile_baseline=False,
        timing_budget=VerifyOptions().timing_budget if budget is None else budget,
    )  # fmt: skip
    verdicts = []
    for number in range(count):
        print(f"run {number + 1} of {count} ...", file=sys.stderr)
        verdicts.append(await verifier.verify(reference, candidate, options))
        if verdicts[-1].timing is None:
            break  # it will not be timed the next time either
    return verdicts


def summary(kernel: str, long: Sequence[Verdict], short: Sequence[Verdict]) -> Repeated:
    """The figures of `long` runs; intervals are those of `short` ones, where there are any."""
    untimed = next((verdict for verdict in (*long, *short) if verdict.timing is None), None)
    if untimed is not None:
        why = untimed.failure.message if untimed.failure is not None else untimed.status
        return _failed(kernel, why)
    timings = [verdict.timing for verdict in long if verdict.timing is not None]
    checked = [verdict.timing for verdict in short if verdict.timing is not None] or timings
    speedups = [timing.speedup_eager for timing in timings]
    value = statistics.median([timing.speedup_eager for timing in (*timings, *checked)])
    return Repeated(
        kernel=kernel,
        runs=len(long),
        candidate_us=1e3 * statistics.median([timing.candidate_ms for timing in timings]),
        speedup=value,
        variation=statistics.stdev(speedups) / statistics.fmean(speedups)
        if len(speedups) > 1
        else 0.0,
        covered=sum(timing.ci95[0] <= value <= timing.ci95[1] for timing in checked),
        intervals=len(checked),
        seconds=statistics.median([verdict.wall_seconds for verdict in long]),
    )


def _failed(kernel: str, why: str) -> Repeated:
    return Repeated(kernel, 0, 0.0, 0.0, 0.0, 0, 0, 0.0, why)


def _print(results: Sequence[Repeated]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    columns: tuple[tuple[str, Any], ...] = (
        ("kernel", "left"), ("time", "right"), ("speed-up", "right"), ("runs", "right"),
        ("variation", "right"), ("intervals that hold", "right"), ("s a Verdict", "right"),
    )  # fmt: skip
    for name, side in columns:
        table.add_column(name, justify=side)
    for item in results:
        if item.problem is not None:
            table.add_row(item.kernel, item.problem)
            continue
        table.add_row(
            item.kernel,
            f"{item.candidate_us:.1f} us",
            f"{item.speedup:.3f}x",
            str(item.runs),
            f"{100 * item.variation:.2f} %",
            f"{item.covered} of {item.intervals}",
            f"{item.seconds:.2f}",
        )
    Console(highlight=False).print(table)
