"""synth on the problems of one level of KernelBench, scaled to this machine, on the CPU."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from musacoder_inference.engines.base import Declined, Generated, GenerationRequest
from musacoder_inference.registry import engine as find_engine
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.limits import Limits
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifierSettings, VerifyOptions
from musacoder_verifier.worker import ChildDied, ChildTimeout

from musacoder_lsp.cli.bench import layout, lines
from musacoder_lsp.cli.options import Unusable, interpreter_for, print_json
from musacoder_lsp.places import cache_folder
from musacoder_lsp.settings import Settings

KIND = "synth"
# The size rule of `children/shrink.py`: 4 Mi elements of input, 1 Gi operations a forward, which
# take tens of milliseconds on two cores.
ELEMENTS = 1 << 22
OPERATIONS = 1 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """One problem. `status` is a Verdict status, `declined`, or `no_graph`."""

    problem: int
    name: str
    status: str
    detail: str = ""
    factor: float | None = None
    candidate_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    speedup_eager: float | None = None
    speedup_compile: float | None = None
    faster: bool = False


def run(arguments: argparse.Namespace) -> int:
    """0: every problem ended ok, declined or without a graph; 1: some failed. Raises Unusable."""
    level = layout.numbers(arguments.level) or {1}
    if len(level) != 1:
        raise Unusable("synth is measured on one level at a time; give one --level.")
    (number,) = level
    wanted = layout.numbers(arguments.problems)
    known = layout.problems(arguments.dataset, number)
    paths = [path for place, path in known.items() if wanted is None or place in wanted]
    rows = asyncio.run(_measure(paths, arguments))
    report = _report(rows, arguments, number)
    if arguments.write is not None:
        arguments.write.write_text(_markdown(report, arguments), encoding="utf-8")
    if arguments.json:
        print_json(report)
    else:
        print(_markdown(report, arguments))
    failed = [r for r in rows if r.status not in ("ok", "declined", "no_graph")]
    return 1 if failed else 0


async def _measure(paths: Sequence[Path], arguments: argparse.Namespace) -> list[Row]:
    known = _known(arguments.lines)
    settings = VerifierSettings(
        python=interpreter_for(Settings(python=arguments.python), arguments.dataset).path,
        cache_dir=cache_folder(),
        threads=arguments.threads,
    )
    async with Verifier(settings) as verifier:
        for path in paths:
            if layout.number_of(path) in known:
                continue
            row = await _one(verifier, path, arguments)
            print(_line(row), file=sys.stderr, flush=True)
            known[row.problem] = row
            lines.append(arguments.lines, KIND, backend("cpu").device_name(), asdict(row))
    return [known[layout.number_of(path)] for path in paths]


def _known(path: Path | None) -> dict[int, Row]:
    """Earlier results of this version of the verifier, by problem."""
    if path is None or not path.exists():
        return {}
    names = {item.name for item in fields(Row)}
    rows = [
        Row(**{name: value for name, value in line.items() if name in names})
        for line in lines.read([path], KIND)
    ]
    return {row.problem: row for row in rows}


async def _one(verifier: Verifier, path: Path, arguments: argparse.Namespace) -> Row:
    blank = Row(layout.number_of(path), path.stem.partition("_")[2].strip("_"), "infra_error")
    source, factor = path.read_text(encoding="utf-8"), 1.0
    if arguments.scale == "auto":
        shrunk = await _shrunk(verifier, source, arguments.threads)
        if "source" not in shrunk:
            return replace(blank, status="reference_error", detail=str(shrunk.get("error")))
        source, factor = shrunk["source"], shrunk["factor"]
    blank = replace(blank, factor=factor)
    reference = Reference(source, training=True)
    exported = await verifier.export(reference)
    if exported.graph is None:
        return replace(blank, status="no_graph", detail=str(exported.error))
    request = GenerationRequest(source, "cpu", graph=exported.graph)
    async for event in find_engine("synth").generate(request):
        if isinstance(event, Declined):
            return replace(blank, status="declined", detail=event.reason)
        if isinstance(event, Generated):
            candidate = Candidate(event.source, provenance=Provenance("synth"))
            options = VerifyOptions(
                timing=arguments.timing,
                compile_baseline=arguments.compile_baseline,
                baseline_timeout=arguments.compile_seconds,
                scope=False,
                policy="native-only",
            )
            return _with_verdict(blank, await verifier.verify(reference, candidate, options))
    return blank


async def _shrunk(verifier: Verifier, source: str, threads: int) -> Mapping[str, Any]:
    worker = await verifier.worker()
    spec = {
        "source": source,
        "training": True,
        "elements": ELEMENTS,
        "operations": OPERATIONS,
        "threads": threads,
    }
    try:
        limits = Limits(seconds=130.0)
        async with worker.child("shrink", spec, limits=limits) as child:
            return await child.receive(120.0)
    except (ChildDied, ChildTimeout) as problem:
        return {"error": str(problem)}


def _with_verdict(row: Row, verdict: Verdict) -> Row:
    timing = verdict.timing
    detail = verdict.failure.message if verdict.failure is not None else ""
    if timing is None:
        return replace(row, status=verdict.status, detail=detail)
    return replace(
        row,
        status=verdict.status,
        detail=detail,
        candidate_ms=timing.candidate_ms,
        eager_ms=timing.eager_ms,
        compile_ms=timing.compile_ms,
        speedup_eager=timing.speedup_eager,
        speedup_compile=timing.speedup_compile,
        faster=verdict.faster,
    )


def _geomean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _report(rows: Sequence[Row], arguments: argparse.Namespace, level: int) -> dict[str, Any]:
    ok = [r for r in rows if r.status == "ok"]
    eager = [r.speedup_eager for r in ok if r.speedup_eager]
    compiled = [r.speedup_compile for r in ok if r.speedup_compile]
    return {
        "machine": {"device": backend("cpu").device_name(), "threads": arguments.threads},
        "date": date.today().isoformat(),
        "level": level,
        "counts": dict(Counter(r.status for r in rows)),
        "geomean_eager": _geomean(eager),
        "geomean_compile": _geomean(compiled),
        "faster": sum(r.faster for r in ok),
        "results": {str(r.problem): asdict(r) for r in rows},
    }


def _figure(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _line(row: Row) -> str:
    speed = f" {_figure(row.speedup_eager)}x vs eager" if row.speedup_eager else ""
    return f"{row.problem:3d} {row.name}: {row.status}{speed} {row.detail}".rstrip()


def _markdown(report: Mapping[str, Any], arguments: argparse.Namespace) -> str:
    tally = sorted(report["counts"].items())
    counts = ", ".join(f"{count} {status}" for status, count in tally)
    head = [
        f"# KernelBench level {report['level']} on the CPU, engine synth (no model)",
        "",
        f"Written by `musacoder bench kernelbench` on {report['date']}, on"
        f" {report['machine']['device']}; {arguments.threads} threads on both sides, fp32,"
        " training mode as in KernelBench.",
        "Sizes are scaled by one rule: module-level integers above 32 (above 11 where that is not"
        f" enough) times the factor shown, at most {ELEMENTS} input elements and {OPERATIONS}"
        " operations a forward: those of contractions and convolutions, and 16 for each element"
        " that an operator reads or writes.",
        "",
        f"Results: {counts}. Geometric mean of the speed-up over the `ok` ones:"
        f" {_figure(report['geomean_eager'])} against eager,"
        f" {_figure(report['geomean_compile'])} against the best of torch.compile."
        f" Faster than eager: {report['faster']}.",
        "",
        "| # | problem | status | factor | kernel ms | eager ms | compile ms | vs eager"
        " | vs compile |",
        "|--:|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    body = []
    for row in report["results"].values():
        status = row["status"] if not row["detail"] else f"{row['status']}: {row['detail']}"
        figures = (row["candidate_ms"], row["eager_ms"], row["compile_ms"])
        speeds = (row["speedup_eager"], row["speedup_compile"])
        cells = [*(_figure(v, 3) for v in figures), *(_figure(v) for v in speeds)]
        factor = "–" if row["factor"] is None else f"{row['factor']:g}"
        name = row["name"].replace("_", " ").strip()
        body.append(f"| {row['problem']} | {name} | {status} | {factor} | {' | '.join(cells)} |")
    return "\n".join([*head, *body, ""])
