"""`musacoder bench kernelbench DATASET`: Candidates of KernelBench's runs, or of synth.

With `--run` the folder's Candidates are verified, on any backend; without, synth writes one for
each problem of a level, at sizes scaled to this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from musacoder_verifier import kernelbench
from musacoder_verifier.backends import registry
from musacoder_verifier.settings import VerifierSettings, VerifyOptions

from musacoder_lsp import settings
from musacoder_lsp.cli import options
from musacoder_lsp.cli.bench import layout, lines, run_candidates, scores, synth_problems
from musacoder_lsp.cli.bench.run_candidates import OnRow, Plan
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.places import cache_folder
from musacoder_lsp.settings import Settings


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "kernelbench",
        help="KernelBench's problems: Candidates of a run, or those that synth writes",
        description="Exit code 1: a Candidate is not ok (with --run), or synth failed (without).",
    )
    add = parser.add_argument
    add("dataset", type=Path, metavar="DATASET", help="a checkout of KernelBench")
    add("--run", dest="runs", type=Path, action="append", metavar="FOLDER",
        help="a run's folder, such as runs/NAME; may be given several times")  # fmt: skip
    add("--backend", default="cpu", help=f"one of {', '.join(settings.BACKENDS)}; cuda:1 for one")
    add("--policy", choices=settings.POLICIES, default="native-only")
    add("--level", help="numbers and ranges (without --run: one, default 1)")
    add("--problems", help="numbers and ranges, such as 1,5,19-32")
    add("--python", metavar="PATH", help="the interpreter that has torch")
    add("--threads", type=int, default=None, help="threads of both sides")
    add("--timing", action=argparse.BooleanOptionalAction, default=True)
    add("--timing-sample", type=int, metavar="N", help="time only N, drawn at random by --seed")
    add("--seed", type=int, default=1, help="of the timing sample (default: 1)")
    add("--compile-baseline", action=argparse.BooleanOptionalAction, default=True)
    add("--compile-only", action="store_true", help="fill the cache; needs no device")
    add("--device-slots", type=int, default=1, metavar="N",
        help="Candidates on one device at once (default: 1)")  # fmt: skip
    add("--stage-timeout", type=float, default=300.0, metavar="SECONDS")
    add(
        "--device-inputs",
        action="store_true",
        help="with --like kernelbench: get_inputs runs with the device as torch's default one, "
        "instead of on the CPU's generator as KernelBench has it (seconds for large inputs)",
    )
    add("--seconds", type=float, metavar="S", help="begin nothing new after so long; see --lines")
    add("--lines", type=Path, metavar="FILE",
        help="keep each result as a JSON line, and go on where FILE ends")  # fmt: skip
    add("--results", type=Path, metavar="FILE", help="write KernelBench's eval_results.json")
    add("--write", type=Path, metavar="FILE", help="write the table as Markdown")
    add("--json", action="store_true", help="one JSON object on stdout")
    add("--scale", choices=("auto", "none"), default="auto", help="without --run: shrink sizes")
    add("--compile-seconds", type=float, default=90.0,
        help="limit for torch.compile, per problem")  # fmt: skip
    options.add_kernelbench_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        if not arguments.runs:
            arguments.threads = arguments.threads or 2
            return synth_problems.run(arguments)
        return _run(arguments)
    except Unusable as problem:
        return options.fail(problem, as_json=arguments.json)


def _run(arguments: argparse.Namespace) -> int:
    plan = plan_of(arguments)
    verifier = settings_of(arguments)
    act = run_candidates.build if arguments.compile_only else run_candidates.run
    with _Progress() as on_row:
        found = asyncio.run(act(plan, verifier, on_row))
    total = len(run_candidates.items(plan))
    if arguments.compile_only:
        table = scores.compile_table(found)
    else:
        table = scores.table(found)
        if arguments.results is not None:
            _write_results(arguments.results, found)
    text = scores.markdown(table)
    if arguments.write is not None:
        arguments.write.write_text(text, encoding="utf-8")
    if arguments.json:
        options.print_json({"of": total, "done": len(found), "results": table})
    else:
        print(text)
        if len(found) < total:
            print(f"{total - len(found)} of {total} are left; the same command goes on.")
    good = all(_status(line) == "ok" for line in found)
    return 0 if good and len(found) == total else 1


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Raises Unusable."""
    try:
        registry.split(arguments.backend)
    except ValueError as error:
        raise Unusable(f"{error}.") from error
    levels, wanted = layout.numbers(arguments.level), layout.numbers(arguments.problems)
    return Plan(
        dataset=arguments.dataset,
        runs=tuple(arguments.runs),
        options=_options(arguments),
        levels=frozenset(levels) if levels is not None else None,
        problems=frozenset(wanted) if wanted is not None else None,
        sample=arguments.timing_sample,
        seed=arguments.seed,
        seconds=arguments.seconds,
        lines=arguments.lines,
    )


def _options(arguments: argparse.Namespace) -> VerifyOptions:
    if arguments.like is not None:
        return kernelbench.options(
            arguments.backend, tolerance=arguments.tolerance, trials=arguments.trials,
            timing=arguments.timing, stage_timeout=arguments.stage_timeout,
            device_inputs=arguments.device_inputs,
        )  # fmt: skip
    if arguments.device_inputs:
        raise Unusable("--device-inputs belongs to --like kernelbench; give both.")
    if arguments.tolerance is not None:
        raise Unusable("--tolerance belongs to --like kernelbench; give both.")
    return VerifyOptions(
        backend=arguments.backend, policy=arguments.policy, timing=arguments.timing,
        compile_baseline=arguments.compile_baseline, scope=False,
        baseline_timeout=arguments.compile_seconds,
    )  # fmt: skip


def settings_of(arguments: argparse.Namespace) -> VerifierSettings:
    """Raises Unusable."""
    chosen = Settings(python=arguments.python)
    return VerifierSettings(
        python=options.interpreter_for(chosen, Path.cwd()).path,
        cache_dir=cache_folder(),
        stage_timeout=arguments.stage_timeout,
        threads=arguments.threads,
        device_slots=max(1, arguments.device_slots),
    )


def _status(line: lines.Line) -> str:
    body = line.get("verdict") or line
    return str(body["status"])


def _write_results(path: Path, found: Sequence[lines.Line]) -> None:
    names = ("run", "level", "problem", "sample")
    body = layout.results_file(
        (layout.Identifier(*(line[name] for name in names)), line["kernelbench"])
        for line in found
        if line["kernelbench"] is not None
    )
    path.write_text(json.dumps(body, indent=4), encoding="utf-8")


class _Progress:
    """A bar on a terminal, one line for each result elsewhere; on stderr."""

    def __enter__(self) -> OnRow:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        columns = (BarColumn(30), MofNCompleteColumn(), Elapsed(), TextColumn("{task.description}"))
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, disable=not _terminal())
        self._task = self._bar.add_task("", total=None)
        self._bar.start()
        return self._row

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _row(self, line: lines.Line, done: int, of: int) -> None:
        told = f"L{line['level']} #{line['problem']} {line['run']}: {_status(line)}"
        self._bar.update(self._task, completed=done, total=of, description=told)
        if not _terminal():
            print(f"{done}/{of} {told}", file=sys.stderr, flush=True)


def _terminal() -> bool:
    return sys.stderr.isatty()
