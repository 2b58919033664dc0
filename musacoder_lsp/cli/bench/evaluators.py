"""`musacoder bench evaluators`: our wall time against that of KernelBench's own evaluator.

Same Candidates, same machine, same run, one after the other. Both sides start with torch imported:
what importing costs is told apart. Ours is `cold` with an empty artefact cache (the fast lane is
prepared, once per machine, before), then `warm`; what we do beyond KernelBench is measured by a
Verdict with it, cold and warm. `--compile-only` needs no device: ours, torch's own load_inline, and
plain nvcc on the device code alone (`plain_cuda`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from musacoder_verifier import kernelbench, tools
from musacoder_verifier.backends import registry
from musacoder_verifier.library import as_candidate, as_reference
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.stages import collect, pair
from musacoder_verifier.toolchain import host_compiler
from musacoder_verifier.verifier import Verifier

from musacoder_lsp.cli import options
from musacoder_lsp.cli.bench import layout, lines, misbehaviours, plain_cuda, scores
from musacoder_lsp.cli.bench.layout import Identifier
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.places import cache_folder
from musacoder_lsp.settings import Settings

KIND = "evaluator"
CANDIDATES = Path(__file__).with_name("evaluators.toml")
_CHILD = Path(__file__).with_name("kernelbench_child.py")
# scripts/eval_from_generations.py of KernelBench.
_CORRECT_TRIALS, _PERF_TRIALS = 5, 100
_SECONDS = 600.0
# What this machine prepares once, whatever is verified on it.
_ONCE = ("prepared", "ceilings")


@dataclass(frozen=True, slots=True)
class Task:
    name: Identifier
    problem: Path
    kernel: Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "evaluators", help="our wall time against that of KernelBench's own evaluator"
    )
    add = parser.add_argument
    add("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    add("--runs", type=Path, required=True, metavar="FOLDER",
        help="the folder that holds the runs named in --candidates")  # fmt: skip
    add("--candidates", type=Path, default=CANDIDATES, metavar="FILE", help="TOML of identifiers")
    add("--backend", default="cuda")
    add("--python", metavar="PATH", help="the interpreter that has torch")
    add("--compile-only", action="store_true", help="no device: three ways to compile")
    add("--stock", action=argparse.BooleanOptionalAction, default=True,
        help="with --compile-only: torch's load_inline, too, about a minute each")  # fmt: skip
    add("--nvcc", default=None, metavar="PATH", help="for the plain compile (default: on PATH)")
    add("--arch", default="sm_90", help="for the plain compile")
    add("--seconds", type=float, metavar="S", help="begin nothing new after so long; see --lines")
    add("--lines", type=Path, metavar="FILE", help="keep results; go on where FILE ends")
    add("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0: everything was measured; 1: something failed or is left."""
    try:
        tasks = read_tasks(arguments.candidates, arguments.kernelbench, arguments.runs)
        found = asyncio.run(_measure(tasks, arguments))
    except Unusable as problem:
        return options.fail(problem, as_json=arguments.json)
    table = summary(found)
    if arguments.json:
        options.print_json({"results": table, "lines": found})
    else:
        print(scores.markdown(table))
    return 0 if len(found) == len(tasks) and not any(line["problems"] for line in found) else 1


def read_tasks(path: Path, checkout: Path, runs: Path) -> list[Task]:
    """Raises Unusable."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
        names = [Identifier(**item) for item in body["candidate"]]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise Unusable(f"{path} names no Candidates: {error}.") from error
    tasks = []
    for name in names:
        kernels = layout.candidates(runs / name.run)
        problem = layout.problems(checkout, name.level).get(name.problem)
        if name not in kernels or problem is None:
            raise Unusable(f"{name} is missing in {runs} or in {checkout}.")
        tasks.append(Task(name, problem, kernels[name]))
    return tasks


async def _measure(tasks: Sequence[Task], arguments: argparse.Namespace) -> list[lines.Line]:
    python = options.interpreter_for(Settings(python=arguments.python), Path.cwd()).path
    device = registry.backend(arguments.backend).device_name()
    part = "compile" if arguments.compile_only else "whole"
    before = _known(arguments.lines, part)
    ends = time.monotonic() + (arguments.seconds or 1e9)
    with tempfile.TemporaryDirectory(prefix="musacoder-evaluators-") as folder:
        for name in _ONCE:
            (cache_folder() / name).mkdir(parents=True, exist_ok=True)
            Path(folder, name).symlink_to(cache_folder() / name)
        settings = VerifierSettings(
            python=python, cache_dir=Path(folder), stage_timeout=_SECONDS, device_slots=1
        )
        async with Verifier(settings) as verifier:
            await _prepare(verifier, arguments)
            measure = _Measurement(verifier, arguments, python, Path(folder))
            for task in tasks:
                if str(task.name) in before or time.monotonic() > ends:
                    continue
                figures = await (measure.compiling(task) if arguments.compile_only
                                 else measure.whole(task))  # fmt: skip
                problems = {k: v for k, v in figures.items() if k.endswith("problem") and v}
                times = {k: v for k, v in figures.items() if not k.endswith("problem")}
                body = {"part": part, **asdict(task.name), "figures": times, "problems": problems}
                before[str(task.name)] = lines.append(arguments.lines, KIND, device, body)
                print(task.name, json.dumps(figures), file=sys.stderr, flush=True)
    return [before[str(task.name)] for task in tasks if str(task.name) in before]


async def _prepare(verifier: Verifier, arguments: argparse.Namespace) -> None:
    """One kernel that is not measured: the lanes are prepared, the worker and the device awake."""
    reference = as_reference(misbehaviours.REFERENCE)
    candidate = as_candidate(misbehaviours.candidate(misbehaviours.HONEST, arguments.backend))
    how = VerifyOptions(backend=arguments.backend, compile_baseline=False)
    if arguments.compile_only:
        failure = (await verifier.build(reference, candidate, how)).failure
    else:
        failure = (await verifier.verify(reference, candidate, how)).failure
    if failure is not None:
        raise Unusable(f"nothing can be measured on {arguments.backend}: {failure.message}.")


def _known(path: Path | None, part: str) -> dict[str, lines.Line]:
    if path is None or not path.exists():
        return {}
    return {
        str(Identifier(line["run"], line["level"], line["problem"], line["sample"])): line
        for line in lines.read([path], KIND)
        if line["part"] == part and not line["problems"]
    }


@dataclass(frozen=True, slots=True)
class _Measurement:
    verifier: Verifier
    arguments: argparse.Namespace
    python: str
    folder: Path

    async def whole(self, task: Task) -> dict[str, Any]:
        """Compile, correctness and eager timing on both sides; ours with its extra work, too."""
        reference, candidate = as_reference(task.problem, training=True), as_candidate(task.kernel)
        backend = self.arguments.backend
        plain = VerifyOptions(
            backend=backend, policy="kernelbench", compile_baseline=False, scope=False
        )
        everything = replace(plain, compile_baseline=True, scope=True)
        figures: dict[str, Any] = {}
        for name, how in (
            ("ours cold", plain), ("ours warm", plain),
            ("all cold", everything), ("all warm", everything),
        ):  # fmt: skip
            verdict = await self.verifier.verify(reference, candidate, how)
            figures[name] = verdict.wall_seconds
            for stage, report in verdict.stages.items():
                figures[f"{name} {stage}"] = report.seconds
            if verdict.status != "ok":
                said = verdict.failure.message if verdict.failure is not None else ""
                figures[f"{name} problem"] = f"{verdict.status} {said}".strip()
        like = kernelbench.options(backend)
        figures["ours like kernelbench"] = (
            await self.verifier.verify(reference, candidate, like)
        ).wall_seconds
        theirs = await self._kernelbench(task, compile_only=False)
        figures["kernelbench"] = theirs.get("seconds")
        figures["kernelbench compile"] = theirs.get("compile_seconds")
        figures["kernelbench import"] = theirs.get("import_seconds")
        figures["kernelbench problem"] = theirs.get("error")
        return figures

    async def compiling(self, task: Task) -> dict[str, Any]:
        """Seconds of compile and link: ours, torch's own, plain nvcc."""
        reference, candidate = as_reference(task.problem, training=True), as_candidate(task.kernel)
        how = VerifyOptions(backend=self.arguments.backend)
        ours = await self.verifier.build(reference, candidate, how)
        figures: dict[str, Any] = {
            "ours": ours.compile.seconds if ours.compile is not None else None,
            "ours problem": ours.failure.message if ours.failure is not None else None,
        }
        if ours.compile is not None and ours.compile.lane != "fast":
            figures["ours problem"] = f"took the stock lane: {ours.compile.lane_reason}"
        plain, problem = await self._plain(task)
        figures["plain nvcc"], figures["plain problem"] = plain, problem
        if self.arguments.stock:
            theirs = await self._kernelbench(task, compile_only=True)
            figures["stock"] = theirs.get("compile_seconds")
            figures["stock problem"] = theirs.get("error")
        return figures

    async def _kernelbench(self, task: Task, *, compile_only: bool) -> Mapping[str, Any]:
        build = tempfile.mkdtemp(prefix="kernelbench-", dir=self.folder)
        order = {
            "checkout": str(self.arguments.kernelbench.resolve()),
            "reference": task.problem.read_text(encoding="utf-8"),
            "candidate": task.kernel.read_text(encoding="utf-8"),
            "build": build, "correct_trials": _CORRECT_TRIALS, "perf_trials": _PERF_TRIALS,
            "device": self.arguments.backend if ":" in self.arguments.backend else "cuda:0",
            "compile_only": compile_only,
        }  # fmt: skip
        major, minor = self.arguments.arch.removeprefix("sm_")[:-1], self.arguments.arch[-1]
        search = os.pathsep.join((str(Path(self.python).parent), os.environ.get("PATH", "")))
        result = await tools.run(
            [self.python, str(_CHILD), json.dumps(order)],
            cwd=self.folder,
            timeout=_SECONDS,
            environment={"TORCH_CUDA_ARCH_LIST": f"{major}.{minor}", "PATH": search},
            niceness=0,
        )
        shutil.rmtree(build, ignore_errors=True)
        try:
            answer: Mapping[str, Any] = json.loads(result.output.strip().splitlines()[-1])
        except (ValueError, IndexError):
            said = "it ran out of time" if result.timed_out else result.output.strip()[-300:]
            return {"error": f"no answer: {said}"}
        return answer

    async def _plain(self, task: Task) -> tuple[float | None, str | None]:
        nvcc = self.arguments.nvcc or shutil.which("nvcc")
        if nvcc is None:
            return None, "nvcc is not on PATH"
        host = host_compiler()
        collected = await collect.collect(
            await self.verifier.worker(), as_candidate(task.kernel),
            pair.reference_spec(as_reference(task.problem)), path=str(task.kernel),
            timeout=_SECONDS,
        )  # fmt: skip
        sources = [s.text for request in collected.requests for s in request.sources
                   if s.language == "cuda"]  # fmt: skip
        spent = 0.0
        for index, text in enumerate(sources):
            stripped = plain_cuda.strip(text)
            if stripped.lost or not stripped.kernels:
                return None, f"kernels need PyTorch: {', '.join(stripped.lost) or 'there are none'}"
            path = self.folder / f"plain{index}.cu"
            path.write_text(stripped.text, encoding="utf-8")
            # Linked by the host compiler: nvcc insists on libraries that a toolkit from pip lacks.
            for command in (
                [nvcc, "-O3", f"-arch={self.arguments.arch}", "-Xcompiler", "-fPIC", "-c",
                 path.name, "-o", f"plain{index}.o"],
                [host.path, *host.linker_flags, "-shared", f"plain{index}.o",
                 "-o", f"plain{index}.so"],
            ):  # fmt: skip
                result = await tools.run(command, cwd=self.folder, timeout=_SECONDS)
                if result.returncode != 0:
                    return None, f"{Path(command[0]).name}: {result.output.strip()[:300]}"
                spent += result.seconds
        return (spent, None) if sources else (None, "there are no CUDA sources")


def summary(found: Sequence[lines.Line]) -> scores.Table:
    """Each figure's median over the Candidates that have it, and the ratios that count."""
    columns: dict[str, list[float]] = {}
    for line in found:
        for name, value in line["figures"].items():
            if isinstance(value, (int, float)):
                columns.setdefault(name, []).append(float(value))
    rows: scores.Table = [
        {"name": name, "median s": statistics.median(values), "of": len(values)}
        for name, values in columns.items()
    ]
    for over, under in (
        ("kernelbench", "ours cold"), ("kernelbench", "ours warm"), ("kernelbench", "all cold"),
        ("kernelbench", "all warm"), ("stock", "ours"), ("ours", "plain nvcc"),
    ):  # fmt: skip
        pairs = [
            (line["figures"].get(over), line["figures"].get(under))
            for line in found
            if line["figures"].get(over) and line["figures"].get(under)
        ]
        if pairs:
            medians = [statistics.median(side) for side in zip(*pairs, strict=True)]
            ratio = medians[0] / medians[1]
            rows.append({"name": f"{over} / {under}", "ratio": ratio, "of": len(pairs)})
    return rows
