"""`musacoder bench latency`: the real server over stdio, timed from the editor's side.

While it is timed, g++ compiles one file after the other. Budgets: see `BUDGETS`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from musacoder_verifier import tools

from musacoder_lsp.cli import options
from musacoder_lsp.cli.bench.synthetic_source import synthetic_source
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.editor_client import EditorClient

SIZES = (1_000, 10_000, 50_000)
# (p50, p99) in milliseconds for files of SIZES lines.
BUDGETS: dict[str, tuple[tuple[float, float], ...]] = {
    "didChange": ((1, 3), (2, 6), (8, 20)),
    "hover": ((2, 10), (5, 20), (10, 50)),
    "codeLens": ((3, 15), (8, 40), (20, 100)),
    "codeLens after edit": ((3, 20), (10, 50), (30, 100)),
    "codeAction": ((5, 30), (10, 50), (20, 100)),
    "generate to job id": ((5, 30),) * 3,
    "cancel to dead": ((200, 1000),) * 3,
    "shutdown to gone": ((150, 800),) * 3,
}
MEMORY_MB = (80.0, 120.0, 250.0)
# Milliseconds between two actions of the scripted editor.
_PACE = 0.01
_COMPILE_SECONDS = 120.0
_YARDSTICK = "empty command"
# Milliseconds of an empty command above which something else has the processors.
_BUSY_MS = 1.0
# Seconds after which a process that does not die is counted as it is.
_GIVE_UP = 5.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "latency", help="how long the editor waits for the server while a compile runs"
    )
    parser.add_argument(
        "--lines", type=int, action="append", help="size of the file; may be given several times"
    )
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 when every budget holds, 1 when one does not, 2 without a compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        problem = Unusable("No C++ compiler was found; install g++ (apt install g++).")
        return options.fail(problem, as_json=arguments.json)
    sizes = tuple(arguments.lines or SIZES)
    samples = 40 if arguments.quick else 250
    measured = asyncio.run(_measure_all(sizes, samples, compiler))
    if arguments.json:
        options.print_json(_as_json(measured))
    else:
        _print_table(measured)
    return 0 if all(not size.broken() for size in measured) else 1


@dataclass(slots=True)
class Measured:
    """Times in milliseconds, memory in MiB, of one file size."""

    lines: int
    times: dict[str, list[float]] = field(default_factory=dict)
    server_mb: float = 0.0
    children_mb: float = 0.0
    did_open_ms: float = 0.0
    first_lenses_ms: float = 0.0
    lenses: int = 0

    def summary(self, name: str) -> tuple[float, float]:
        values = sorted(self.times[name])
        return statistics.median(values), values[min(len(values) - 1, int(len(values) * 0.99))]

    def broken(self) -> list[str]:
        """The budgets that do not hold; sizes in between are held to the next larger one's."""
        index = next((i for i, size in enumerate(SIZES) if self.lines <= size), len(SIZES) - 1)
        found = []
        for name, budgets in BUDGETS.items():
            if name not in self.times:
                continue
            p50, p99 = self.summary(name)
            if p50 > budgets[index][0] or p99 > budgets[index][1]:
                found.append(name)
        if self.server_mb > MEMORY_MB[index]:
            found.append("server memory")
        return found


async def _measure_all(sizes: Sequence[int], samples: int, compiler: str) -> list[Measured]:
    measured = []
    with tempfile.TemporaryDirectory(prefix="musacoder-bench-") as folder:
        async with _compiling(compiler, Path(folder)):
            for lines in sizes:
                measured.append(await _measure(lines, samples, Path(folder)))
    return measured


@contextlib.asynccontextmanager
async def _compiling(compiler: str, folder: Path) -> AsyncIterator[None]:
    """A real compile runs all the time, started as the server starts its own."""
    source = folder / "load.cpp"
    source.write_text(
        "#include <regex>\n#include <map>\n#include <string>\n#include <algorithm>\n"
        'int main() { std::map<std::string, std::regex> m; m["a"] = std::regex("a+b*");'
        ' return std::regex_match(std::string("aab"), m["a"]); }\n'
    )

    command = [compiler, "-O2", "-c", str(source), "-o", str(folder / "load.o")]

    async def repeat() -> None:
        while True:
            await tools.run(command, cwd=folder, timeout=_COMPILE_SECONDS)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class _Script:
    """One scripted editor with one open file."""

    def __init__(self, client: EditorClient, uri: str, text: str) -> None:
        self.client = client
        self.uri = uri
        self.document = {"uri": uri}
        self.version = 1
        self.rows = text.split("\n")
        self.sites: list[dict[str, Any]] = []

    async def empty(self) -> None:
        await self.client.request(
            "workspace/executeCommand", {"command": "musacoder.jobs", "arguments": []}
        )

    def edit(self, number: int) -> None:
        """Types one character, or deletes it again, in the middle of the file."""
        self.version += 1
        line = len(self.rows) // 2 + number // 2 % 50
        end = {"line": line, "character": number % 2}
        change = {
            "range": {"start": {"line": line, "character": 0}, "end": end},
            "text": "" if number % 2 else " ",
        }
        self.client.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": self.uri, "version": self.version},
                "contentChanges": [change],
            },
        )

    async def lenses(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.client.request(
            "textDocument/codeLens", {"textDocument": self.document}
        )
        return found

    def site(self, number: int) -> dict[str, Any]:
        return self.sites[number * 7 % len(self.sites)]


async def _measure(lines: int, samples: int, folder: Path) -> Measured:
    root = folder / f"workspace {lines}"
    root.mkdir()
    text = synthetic_source(lines)
    file = root / "model.py"
    file.write_text(text)
    state = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    argv = [sys.executable, "-m", "musacoder_lsp.cli.lsp"]
    result = Measured(lines)
    async with EditorClient.connect(argv, root, environment=state) as client:
        script = _Script(client, file.as_uri(), text)
        await _times(result, script, text, samples)
        process = psutil.Process(client.process.pid)
        result.server_mb = process.memory_info().rss / 2**20
        children = process.children(recursive=True)
        result.children_mb = sum(child.memory_info().rss for child in children) / 2**20
        await _cancels(result, script, process, max(3, samples // 50))
    ends = []
    for _ in range(max(3, samples // 50)):
        async with EditorClient.connect(argv, root, environment=state) as client:
            script = _Script(client, file.as_uri(), text)
            client.open(file.as_uri(), text)
            await script.lenses()
            begun = time.perf_counter()
            await client.request("shutdown", None)
            client.notify("exit", None)
            await client.process.wait()
            ends.append((time.perf_counter() - begun) * 1000)
    result.times["shutdown to gone"] = ends
    return result


async def _times(result: Measured, script: _Script, text: str, samples: int) -> None:
    times = result.times
    times[_YARDSTICK] = await _repeat(samples, lambda _: script.empty())
    begun = time.perf_counter()
    script.client.open(script.uri, text)
    await script.empty()
    result.did_open_ms = (time.perf_counter() - begun) * 1000
    while not script.sites:
        script.sites = await script.lenses()
    result.first_lenses_ms = (time.perf_counter() - begun) * 1000
    result.lenses = len(script.sites)

    async def change(number: int) -> None:
        script.edit(number)
        await script.empty()

    async def lenses_after_edit(number: int) -> None:
        script.edit(number)
        await script.lenses()

    async def hover(number: int) -> None:
        place = script.site(number)["range"]["start"]
        await script.client.request(
            "textDocument/hover", {"textDocument": script.document, "position": place}
        )

    async def action(number: int) -> None:
        await script.client.request(
            "textDocument/codeAction",
            {
                "textDocument": script.document,
                "range": script.site(number)["range"],
                "context": {"diagnostics": []},
            },
        )

    async def cached(_: int) -> None:
        await script.lenses()

    # A notification has no answer: the empty command behind it tells when it was handled.
    yardstick = statistics.median(times[_YARDSTICK])
    changed = await _repeat(samples, change)
    times["didChange"] = [max(0.0, value - yardstick) for value in changed]
    times["codeLens after edit"] = await _repeat(samples, lenses_after_edit)
    times["hover"] = await _repeat(samples, hover)
    times["codeAction"] = await _repeat(samples, action)
    times["codeLens"] = await _repeat(samples, cached)
    times["resolve"] = await _repeat(
        samples, lambda n: script.client.request("codeLens/resolve", script.site(n))
    )


async def _cancels(result: Measured, script: _Script, server: psutil.Process, samples: int) -> None:
    """From the command to the job's id, and from the cancel to the death of its processes.

    The first Job starts the runtime worker, which stays for the later ones, and is not counted.
    """
    starts, ends = [], []
    staying: set[int] = set()
    for number in range(samples + 1):
        data = script.site(number)["data"]
        begun = time.perf_counter()
        answer = await script.client.request(
            "workspace/executeCommand",
            {"command": "musacoder.generate", "arguments": [{"uri": script.uri, **data}]},
        )
        started = (time.perf_counter() - begun) * 1000
        working = await _processes_of_job(server, staying, first=number == 0)
        begun = time.perf_counter()
        await script.client.request(
            "workspace/executeCommand", {"command": "musacoder.cancel", "arguments": [answer]}
        )
        while any(_alive(child) for child in working) and time.perf_counter() - begun < _GIVE_UP:
            await asyncio.sleep(0.001)
        if number:
            starts.append(started)
            ends.append((time.perf_counter() - begun) * 1000)
        staying = {child.pid for child in server.children(recursive=True)}
    result.times["generate to job id"] = starts
    result.times["cancel to dead"] = ends


async def _processes_of_job(
    server: psutil.Process, staying: set[int], *, first: bool
) -> list[psutil.Process]:
    """The processes that a Job has started, once there are some; of the first one, those under the
    worker, which is a child of the server itself."""
    deadline = time.perf_counter() + _GIVE_UP * 12
    while time.perf_counter() < deadline:
        found = [child for child in server.children(recursive=True) if child.pid not in staying]
        if first:
            found = [child for child in found if _parent(child) != server.pid]
        if found:
            return [] if first else found
        await asyncio.sleep(0.01)
    return []


def _parent(child: psutil.Process) -> int | None:
    try:
        return int(child.ppid())
    except psutil.NoSuchProcess:
        return None


def _alive(child: psutil.Process) -> bool:
    try:
        return bool(child.is_running() and child.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def _repeat(samples: int, action: Callable[[int], Awaitable[Any]]) -> list[float]:
    """An even number, so that what is typed is also deleted."""
    times = []
    for number in range(samples + samples % 2):
        begun = time.perf_counter()
        await action(number)
        times.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(_PACE)
    return times


def _as_json(measured: Sequence[Measured]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for size in measured:
        for name in size.times:
            p50, p99 = size.summary(name)
            results[f"{name} @ {size.lines}"] = {
                "p50_ms": round(p50, 3),
                "p99_ms": round(p99, 3),
                "samples": len(size.times[name]),
                "holds": name not in size.broken(),
            }
        results[f"memory @ {size.lines}"] = {
            "server_mb": round(size.server_mb, 1),
            "children_mb": round(size.children_mb, 1),
            "holds": "server memory" not in size.broken(),
        }
        results[f"didOpen @ {size.lines}"] = {
            "ms": round(size.did_open_ms, 2),
            "first_lenses_ms": round(size.first_lenses_ms, 2),
            "lenses": size.lenses,
        }
    machine = {"system": platform.platform(), "cores": os.cpu_count(), "python": sys.version}
    return {"machine": machine, "results": results}


def _print_table(measured: Sequence[Measured]) -> None:
    names = [_YARDSTICK, *BUDGETS, "resolve"]
    print("p50 / p99 in ms while g++ runs; * marks a budget that does not hold")
    print(f"{'':<22}" + "".join(f"{size.lines:>18,} lines" for size in measured))
    for name in names:
        cells = []
        for size in measured:
            p50, p99 = size.summary(name)
            mark = "*" if name in size.broken() else " "
            cells.append(f"{p50:>12.2f} / {p99:<7.2f}{mark} ")
        print(f"{name:<22}" + "".join(f"{cell:>24}" for cell in cells))
    rows: tuple[tuple[str, Callable[[Measured], str]], ...] = (
        ("didOpen handled", lambda size: f"{size.did_open_ms:.1f} ms"),
        ("first lenses", lambda size: f"{size.first_lenses_ms:.0f} ms ({size.lenses})"),
        ("server memory", lambda size: f"{size.server_mb:.0f} MB"),
        ("its children", lambda size: f"{size.children_mb:.0f} MB"),
    )
    for label, get in rows:
        print(f"{label:<22}" + "".join(f"{get(size):>24}" for size in measured))
    idle = min(size.summary(_YARDSTICK)[0] for size in measured)
    if idle > _BUSY_MS:
        print(
            f"This machine is busy with other work: even an empty command takes {idle:.1f} ms "
            "(0.2 ms on an idle one), so the budgets say little here."
        )
    broken = [f"{name} at {size.lines} lines" for size in measured for name in size.broken()]
    print("All budgets hold." if not broken else f"Over budget: {', '.join(broken)}.")
