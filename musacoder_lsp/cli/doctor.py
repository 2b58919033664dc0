"""`musacoder doctor`: what this machine has for verifying kernels, and how to install the rest."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from musacoder_verifier import toolchain
from musacoder_verifier.backends import registry
from musacoder_verifier.lanes.prepare import PrepareError, torch_include
from musacoder_verifier.toolchain import ToolchainError
from musacoder_verifier.worker import Worker, WorkerError, WorkerInfo

from musacoder_lsp import __version__
from musacoder_lsp.interpreter import NoInterpreter, find_interpreter

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked for. `needed`: the cpu backend cannot verify without it."""

    name: str
    state: Literal["found", "missing", "partial"]
    detail: str  # what was found, or one sentence that says what to do
    needed: bool = False


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="what this machine has for verifying kernels",
        description="Exit code 0: kernels can be verified on the CPU; 2: they cannot.",
    )
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has torch")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    checks = asyncio.run(examine(arguments.python))
    usable = not any(check.needed and check.state == "missing" for check in checks)
    if arguments.json:
        report = {
            "schema_version": SCHEMA_VERSION,
            "version": __version__,
            "backends": {"cpu": usable, "cuda": usable and _cuda_usable(checks)},
            "checks": [asdict(check) for check in checks],
        }
        print(json.dumps(report))
    else:
        _print_table(checks, usable)
    return 0 if usable else 2


async def examine(python: str | None) -> list[Check]:
    """All checks, in the order of the table. Starts the user's interpreter, once."""
    checks = [_platform(), _compiler()]
    try:
        interpreter = find_interpreter(python, Path.cwd(), os.environ)
        worker = await Worker.start(str(interpreter.path))
    except (NoInterpreter, WorkerError) as problem:
        checks.append(Check("torch", "missing", str(problem), needed=True))
        return [*checks, *_devices(None)]
    try:
        info = worker.info
    finally:
        await worker.close()
    return [*checks, *_interpreter(info), *_devices(info)]


def _platform() -> Check:
    name = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform.startswith("linux"):
        return Check("platform", "found", name, needed=True)
    return Check(
        "platform", "missing", f"kernels are verified on Linux only, this is {name}", needed=True
    )


def _compiler() -> Check:
    try:
        compiler = toolchain.host_compiler()
    except ToolchainError as problem:
        return Check("C++ compiler", "missing", str(problem), needed=True)
    return Check("C++ compiler", "found", f"{compiler.label} at {compiler.path}", needed=True)


def _interpreter(info: WorkerInfo) -> list[Check]:
    checks = [
        Check("Python", "found", f"{info.python_version} at {info.python}", needed=True),
        Check("torch", "found", f"{info.torch_version} at {info.torch_path}", needed=True),
    ]
    missing = toolchain.missing_python_header(
        info.python, info.python_version, info.python_include_dirs
    )
    header = next((folder for folder in info.python_include_dirs if not missing), "")
    checks.append(
        Check("Python.h", "missing" if missing else "found", missing or header, needed=True)
    )
    try:
        checks.append(Check("torch headers", "found", str(torch_include(info)), needed=True))
    except PrepareError as problem:
        checks.append(Check("torch headers", "missing", str(problem), needed=True))
    ninja = toolchain.ninja(info.python)
    checks.append(
        Check("ninja", "found", ninja)
        if ninja
        else Check(
            "ninja",
            "missing",
            "sources that the fast lane lacks something for cannot be compiled; install it: "
            f"{info.python} -m pip install ninja",
        )
    )
    off = [f"{layer}: {state}" for layer, state in info.sandbox.items() if state != "on"]
    checks.append(
        Check("sandbox", "partial", "; ".join(off))
        if off
        else Check("sandbox", "found", f"all {len(info.sandbox)} layers")
    )
    return checks


def _devices(info: WorkerInfo | None) -> list[Check]:
    """Devices and their toolkits: information, never a failure."""
    sites = [str(Path(info.torch_path).parent)] if info is not None else []
    checks = [_gpus(info)]
    for name, program, toolkit, hint in (
        ("CUDA toolkit", "nvcc", toolchain.cuda_toolkit(site_folders=sites), "nvidia-cuda-nvcc"),
        ("MUSA toolkit", "mcc", toolchain.musa_toolkit(), None),
    ):
        if toolkit is not None:
            detail = f"{toolkit.compiler} (by {toolkit.origin})"
            checks.append(Check(name, "found", detail))
            continue
        variable = f"{name.split()[0]}_HOME"
        install = f"pip install {hint}" if hint else "install the MUSA SDK from Moore Threads"
        checks.append(
            Check(name, "missing", f"{program} was not found; set {variable}, or {install}")
        )
    return checks


def _gpus(info: WorkerInfo | None) -> Check:
    """The NVIDIA GPUs that can be verified on."""
    names = registry.devices("cuda")
    backend = registry.backend(names[0] if names else "cuda")
    problem = backend.missing() or (backend.unfit(info) if info is not None else None)
    if problem is not None:
        return Check("NVIDIA GPU", "missing", problem)
    listed = (f"{name} {registry.backend(name).device_name()}" for name in names)
    driver = backend.versions().get("driver", "unknown")
    return Check("NVIDIA GPU", "found", f"{', '.join(listed)} (driver {driver})")


def _cuda_usable(checks: Sequence[Check]) -> bool:
    states = {check.name: check.state for check in checks}
    return states["NVIDIA GPU"] == states["CUDA toolkit"] == "found"


def _print_table(checks: Sequence[Check], usable: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    marks = {"found": "[green]ok[/]", "partial": "[yellow]part[/]", "missing": "[yellow]none[/]"}
    table = Table(show_header=False, box=None, pad_edge=False)
    for check in checks:
        failed = check.needed and check.state == "missing"
        table.add_row(check.name, "[red]missing[/]" if failed else marks[check.state], check.detail)
    console = Console(highlight=False, soft_wrap=False)
    console.print(table)
    if usable:
        console.print("Kernels can be verified on the CPU.")
    else:
        console.print("Kernels cannot be verified here yet: see the lines marked missing.")
