"""kill -9 anywhere while a Job runs: nothing is left, and what was not killed goes on.

`make kill-trials` runs 200 of these; the test suite runs one of each kind.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "rms_norm_silu.py"
TRIALS = int(os.environ.get("MUSACODER_KILL_TRIALS", "5"))
VICTIMS = ("client", "server", "zygote", "child", "compiler")
# In these states the victim exists.
STATES = {
    "client": ("queued", "generating", "compiling", "checking", "timing", "done"),
    "server": ("queued", "generating", "compiling", "checking", "timing", "done"),
    "zygote": ("generating", "compiling", "checking", "timing"),
    "child": ("checking", "timing"),
    "compiler": ("compiling",),
}

pytestmark = pytest.mark.e2e


def victim_pid(kind: str, client: int, server: int) -> int | None:
    """None when there is no such process at this moment."""
    if kind == "client":
        return client
    if kind == "server":
        return server
    try:
        below = psutil.Process(server).children(recursive=True)
        zygotes = [p for p in below if "zygote.py" in " ".join(p.cmdline())]
        if kind == "compiler":
            found = [p for p in below if p.name() in ("cc1plus", "g++", "ld", "as")]
        elif kind == "zygote":
            found = [p for p in zygotes if p.ppid() == server]
        else:
            found = [p for p in zygotes if p.ppid() != server]
        return random.choice(found).pid if found else None
    except psutil.NoSuchProcess:
        return None


async def seen(kind: str, client: int, server: int) -> int | None:
    """The victim's pid, as soon as there is one: the state is told before its processes start."""
    for _ in range(200):
        pid = victim_pid(kind, client, server)
        if pid is not None:
            return pid
        await asyncio.sleep(0.01)
    return None


class Client:
    """The clicking client as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.server = 0

    async def state(self) -> str:
        """The next state of a Job; empty when the client has ended."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode().split(" ", 2)
        if len(line) < 3:
            return ""
        self.server = int(line[1])
        return line[0]


@pytest.mark.parametrize("trial", range(TRIALS))
async def test_nothing_is_left(
    trial: int, tmp_path: Path, census: Any, cache_environment: dict[str, str]
) -> None:
    kind = VICTIMS[trial % len(VICTIMS)]
    random.seed(trial)
    chosen = random.choice(STATES[kind])
    path = tmp_path / EXAMPLE.name
    # Only a source that no cache knows is compiled, which takes the time that the other states do
    # not need.
    number = 1 + trial + random.random() if chosen == "compiling" else 1
    eps = f"eps: float = {number}e-6"
    path.write_text(EXAMPLE.read_text().replace("eps: float = 1e-6", eps).replace("2048", "256"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "clicking_client.py"),
        str(path),
        sys.executable,
        *(["timing"] if chosen == "timing" else []),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            **census.environment,
            **cache_environment,
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        start_new_session=True,
    )
    client = Client(process)
    try:
        pid = None
        jobs = 0
        while pid is None:
            state = await client.state()
            assert state, "the client ended by itself"
            jobs += state == "queued"
            if state == chosen or jobs > 1:
                pid = await seen(kind, process.pid, client.server)
            if jobs > 3:
                pytest.fail(f"no {kind} was seen while the state was {chosen}")
        os.kill(pid, 9)
        if kind not in ("client", "server"):
            # The server lives: the Job ends in words, and the next one works.
            states = []
            while states.count("queued") < 2:
                states.append(await client.state())
                assert states[-1], states
            assert {"done", "failed"} & set(states)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert census.survivors() == []
    shutil.rmtree(tmp_path, ignore_errors=True)
