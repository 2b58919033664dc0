"""Running toolchain programs: bounded, killed whole, never orphaned."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from musacoder_verifier import tools


async def test_output_and_code(tmp_path: Path):
    script = "echo out; echo err >&2; exit 3"
    result = await tools.run(["sh", "-c", script], cwd=tmp_path, timeout=30)
    assert result.returncode == 3
    assert sorted(result.output.split()) == ["err", "out"]


async def test_a_missing_program_is_one_sentence(tmp_path: Path):
    with pytest.raises(tools.ToolError, match="nope-cc is not installed"):
        await tools.run(["nope-cc"], cwd=tmp_path, timeout=30)


async def test_bytes_that_are_not_utf8_stay_visible(tmp_path: Path):
    result = await tools.run(["printf", r"a\377b"], cwd=tmp_path, timeout=30)
    assert result.output == r"a\xffb"


async def test_megabytes_of_output_are_cut_in_the_middle(tmp_path: Path):
    script = "import sys; sys.stdout.write('first\\n' + 'x' * 5_000_000 + '\\nlast\\n')"
    result = await tools.run([sys.executable, "-c", script], cwd=tmp_path, timeout=60)
    assert result.output.startswith("first\n")
    assert result.output.endswith("\nlast\n")
    assert len(result.output) < 2 << 20


async def test_a_hanging_program_is_killed_with_its_children(tmp_path: Path):
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    result = await tools.run(["sh", "-c", script], cwd=tmp_path, timeout=1.0)
    assert result.timed_out
    for pid in pids.read_text().split():
        await _gone(int(pid))


async def test_cancelling_kills_it(tmp_path: Path):
    pids = tmp_path / "pids"
    script = f"echo $$ > {pids}.new; mv {pids}.new {pids}; sleep 1000"
    task = asyncio.create_task(tools.run(["sh", "-c", script], cwd=tmp_path, timeout=100))
    while not pids.exists():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone(int(pids.read_text()))


async def test_it_dies_when_its_parent_is_killed(tmp_path: Path):
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    program = (
        "import asyncio, pathlib\n"
        "from musacoder_verifier import tools\n"
        f"asyncio.run(tools.run(['sh', '-c', {script!r}], cwd=pathlib.Path('.'), timeout=500))"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=tmp_path)
    while not pids.exists():
        await asyncio.sleep(0.02)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    for pid in pids.read_text().split():
        await _gone(int(pid))


async def _gone(pid: int) -> None:
    """Returns when the process has ended; a zombie that init has still to reap counts as gone."""
    async with asyncio.timeout(30):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return
            if state == "Z":
                return
            await asyncio.sleep(0.01)


def test_the_guard_runs_without_site_packages() -> None:
    guard = Path(tools.__file__).with_name("tool_guard.py")
    reading, writing = os.pipe()
    argv = [sys.executable, "-I", "-S", str(guard), str(reading), "0", shutil.which("false") or ""]
    done = subprocess.run(argv, pass_fds=[reading], stdin=subprocess.DEVNULL)
    os.close(reading)
    os.close(writing)
    assert done.returncode == 1


async def test_what_a_tool_starts_in_groups_of_its_own_ends_with_it(
    census: Any, tmp_path: Path
) -> None:
    """As ninja does with each of its commands."""
    code = "setsid sleep 1000 & (setsid sleep 1000 &) ; echo started > started; sleep 1000"
    variable, value = next(iter(census.environment.items()))
    argv = ["/usr/bin/env", f"{variable}={value}", "/bin/sh", "-c", code]
    running = asyncio.create_task(tools.run(argv, cwd=tmp_path, timeout=60))
    while not (tmp_path / "started").exists():
        await asyncio.sleep(0.01)
    assert len(census.alive()) >= 3
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert census.survivors() == []
