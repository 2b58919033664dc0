"""What `verify` and `generate` have in common: their options, and the ways of failing."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from musacoder_verifier.verdict import Verdict

from musacoder_lsp import settings
from musacoder_lsp.interpreter import Interpreter, NoInterpreter, find_interpreter
from musacoder_lsp.settings import Settings

SCHEMA_VERSION = 1
# What marks the root of a project, for files that no editor has opened in a workspace.
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", ".musacoder")


class Unusable(Exception):
    """The command cannot run: one sentence that says what to do. Exit code 2."""


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """A Reference and a Candidate as files, and the mode of both."""
    parser.add_argument("reference", metavar="REFERENCE", type=Path)
    parser.add_argument("candidate", metavar="CANDIDATE", type=Path)
    parser.add_argument("--train", action="store_true", help="both sides in training mode")


def add_verification_options(parser: argparse.ArgumentParser) -> None:
    defaults = Settings()
    parser.add_argument(
        "--backend",
        default=defaults.backend,
        metavar="NAME",
        help=f"{', '.join(settings.BACKENDS)}, or one device of several: cuda:1",
    )
    parser.add_argument("--policy", choices=settings.POLICIES, default=defaults.policy)
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has torch")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of both sides")
    parser.add_argument(
        "--stage-timeout", type=float, default=defaults.stage_timeout, metavar="SECONDS"
    )
    parser.add_argument("--sandbox", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--strict-sandbox",
        action="store_true",
        help="run nothing where a layer of the sandbox is missing",
    )
    parser.add_argument(
        "--timing", action=argparse.BooleanOptionalAction, default=True, help="time both sides"
    )
    parser.add_argument(
        "--compile-baseline",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with torch.compile, too: tens of seconds, once per reference",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def to_settings(arguments: argparse.Namespace) -> Settings:
    """The options as the settings that an editor would send. Raises Unusable for a bad value."""
    names = (
        "backend", "policy", "python", "threads", "stage_timeout", "sandbox", "strict_sandbox",
        "timing", "compile_baseline",
    )  # fmt: skip
    given = {name: getattr(arguments, name) for name in names}
    given |= {name: getattr(arguments, name) for name in ("engine",) if name in arguments}
    camel = {settings.client_name(name): value for name, value in given.items()}
    parsed, problems = settings.parse(camel)
    if problems:
        # An editor goes on with the default; a command must not do other than it was told.
        raise Unusable(problems[0].partition("; using ")[0].rstrip(".") + ".")
    return parsed


def interpreter_for(chosen: Settings, folder: Path) -> Interpreter:
    """Raises Unusable when none can be found."""
    try:
        return find_interpreter(chosen.python, folder, os.environ)
    except NoInterpreter as problem:
        raise Unusable(str(problem)) from problem


def project_folder(path: Path) -> Path:
    """The folder that an editor would open for a file: the nearest project root, else its own."""
    for folder in path.resolve().parents:
        if any((folder / mark).exists() for mark in _ROOT_MARKS):
            return folder
    return path.resolve().parent


def read_text(path: Path) -> str:
    """The decoded text of a Python file. Raises Unusable."""
    from musacoder_lsp.sites.document import read_source

    try:
        return read_source(path).text
    except OSError as problem:
        why = os.strerror(problem.errno) if problem.errno else str(problem)
        raise Unusable(f"{path} cannot be read: {why.lower()}.") from problem


def fail(problem: Unusable, *, as_json: bool) -> int:
    """Reports and returns exit code 2."""
    if as_json:
        print_json({"error": str(problem)})
    print(f"musacoder: {problem}", file=sys.stderr)
    return 2


def add_kernelbench_options(parser: argparse.ArgumentParser) -> None:
    """Options that reproduce KernelBench instead of our own checks."""
    parser.add_argument(
        "--like", choices=("kernelbench",),
        help="KernelBench's seeds, trials, comparison, training mode and result schema",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=float, metavar="T",
        help="with --like kernelbench: atol = rtol instead of its own by dtype "
        "(its versions 0 and 0.1 used 1e-2)",
    )  # fmt: skip
    parser.add_argument(
        "--trials", type=int, default=5, metavar="N", help="with --like kernelbench: trials"
    )


def exit_code(verdict: Verdict | None) -> int:
    """0 for a correct kernel, 2 where the machine or the environment is at fault, else 1."""
    if verdict is None:
        return 1
    return {"ok": 0, "infra_error": 2}.get(verdict.status, 1)


def print_json(body: dict[str, Any]) -> None:
    print(json.dumps({"schema_version": SCHEMA_VERSION, **body}, ensure_ascii=False))
