"""`musacoder bench kernelbench`: synth on the problems of a KernelBench checkout, on the CPU."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from musacoder_inference.engines.base import Declined, Generated, GenerationRequest
from musacoder_inference.registry import engine as find_engine
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.content_key import CHECKS_VERSION
from musacoder_verifier.limits import Limits
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifierSettings, VerifyOptions
from musacoder_verifier.worker import ChildDied, ChildTimeout

from musacoder_lsp.places import cache_folder

SCHEMA_VERSION = 1
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


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("kernelbench", help="synth on KernelBench's problems")
    parser.add_argument("--dataset", type=Path, required=True, help="a checkout of KernelBench")
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--problems", help="numbers and ranges, such as 1,5,19-32")
    parser.add_argument("--scale", choices=("auto", "none"), default="auto")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides")
    parser.add_argument("--timing", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compile-baseline", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--compile-seconds", type=float, default=90.0, help="limit for torch.compile, per problem"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument(
        "--lines",
        type=Path,
        metavar="FILE",
        help="keep each result as a JSON line, and skip the problems that FILE already has",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table as Markdown")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0: every problem ended ok, declined or without a graph; 1: some failed; 2: no such data."""
    folder = _level_folder(arguments.dataset, arguments.level)
    if folder is None:
        wanted = f"KernelBench/level{arguments.level}"
        print(f"{arguments.dataset} has no folder {wanted}; give a checkout.", file=sys.stderr)
        return 2
    paths = _selected(folder, arguments.problems)
    rows = asyncio.run(_measure(paths, arguments))
    report = _report(rows, arguments)
    if arguments.write is not None:
        arguments.write.write_text(_markdown(report, arguments), encoding="utf-8")
    if arguments.json:
        print(json.dumps(report))
    else:
        print(_markdown(report, arguments))
    failed = [r for r in rows if r.status not in ("ok", "declined", "no_graph")]
    return 1 if failed else 0


def _level_folder(dataset: Path, level: int) -> Path | None:
    for parent in (dataset / "KernelBench", dataset):
        if (parent / f"level{level}").is_dir():
            return parent / f"level{level}"
    return None


def _number(path: Path) -> int:
    match = re.match(r"\d+", path.name)
    return int(match.group()) if match else 0


def _selected(folder: Path, problems: str | None) -> list[Path]:
    paths = sorted(folder.glob("[0-9]*.py"), key=_number)
    if problems is None:
        return paths
    wanted: set[int] = set()
    for part in problems.split(","):
        first, _, last = part.partition("-")
        wanted.update(range(int(first), int(last or first) + 1))
    return [p for p in paths if _number(p) in wanted]


async def _measure(paths: Sequence[Path], arguments: argparse.Namespace) -> list[Row]:
    known = _known(arguments.lines)
    settings = VerifierSettings(
        python=arguments.python, cache_dir=cache_folder(), threads=arguments.threads
    )
    async with Verifier(settings) as verifier:
        for path in paths:
            if _number(path) in known:
                continue
            row = await _one(verifier, path, arguments)
            print(_line(row), file=sys.stderr, flush=True)
            known[row.problem] = row
            if arguments.lines is not None:
                with arguments.lines.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps({"verifier": CHECKS_VERSION, **asdict(row)}) + "\n")
    return [known[_number(path)] for path in paths]


def _known(lines: Path | None) -> dict[int, Row]:
    """Earlier results of this version of the verifier, by problem."""
    if lines is None or not lines.exists():
        return {}
    found = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    rows = [Row(**item) for item in found if item.pop("verifier") == CHECKS_VERSION]
    return {row.problem: row for row in rows}


async def _one(verifier: Verifier, path: Path, arguments: argparse.Namespace) -> Row:
    blank = Row(_number(path), path.stem.partition("_")[2].strip("_"), "infra_error")
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


def _report(rows: Sequence[Row], arguments: argparse.Namespace) -> dict[str, Any]:
    ok = [r for r in rows if r.status == "ok"]
    eager = [r.speedup_eager for r in ok if r.speedup_eager]
    compiled = [r.speedup_compile for r in ok if r.speedup_compile]
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": {"device": backend("cpu").device_name(), "threads": arguments.threads},
        "date": date.today().isoformat(),
        "level": arguments.level,
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
