"""kill -9 in every place and phase: no process of ours is left.

Importing torch takes seconds, so one worker holds children in all phases at once, and the trials
that only kill children share a worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from musacoder_verifier.worker import Child, ChildDied, Limits, Worker, WorkerError

KIND = "worker_children.run_code"
SOME = Limits(seconds=60, processes="some", network=True)

# A child's code, by the phase in which it is caught. Each says so before it waits.
PHASES = {
    "idle": "channel.send({}); channel.receive()",
    "busy": "channel.send({})\nwhile True: pass",
    "computing": ("import torch\na = torch.ones(400, 400)\nchannel.send({})\nwhile True: a @ a"),
    "printing": "channel.send({})\nwhile True: print('x' * 10000)",
    "flooding": "channel.send({})\nwhile True: channel.send({'x': 'y' * 10000})",
    "deaf": (
        "import signal\n"
        "for n in range(1, 32):\n"
        "    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n"
        "channel.send({})\nwhile True: signal.pause()"
    ),
    "stopped": "import os, signal\nchannel.send({})\nos.kill(os.getpid(), signal.SIGSTOP)",
}
FORKING = {
    "daemon": (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    while True: time.sleep(100)\n"
        "os.wait(); channel.send({}); channel.receive()"
    ),
    "program": (
        "import subprocess\n"
        "p = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "channel.send({}); p.wait()"
    ),
    "bomb": (
        "import os\nchannel.send({})\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    ),
}


async def hold(
    worker: Worker, code: str, sandbox: bool, limits: Limits, ready: asyncio.Event
) -> None:
    async with worker.child(KIND, {"code": code}, limits=limits, sandbox=sandbox) as child:
        await child.receive()
        ready.set()
        await child.exited.wait()


# Enough to have each way of holding on to life, few enough for two cores.
HELD = [
    ("busy", True),
    ("daemon", True),
    ("bomb", True),
    ("idle", False),
    ("deaf", False),
    ("daemon", False),
    ("program", False),
]


async def hold_all(worker: Worker) -> list[asyncio.Task[None]]:
    """Children in many phases at once; returns when each has said that it is there."""
    tasks, signs = [], []
    for name, sandbox in HELD:
        code = {**PHASES, **FORKING}[name]
        signs.append(asyncio.Event())
        tasks.append(asyncio.create_task(hold(worker, code, sandbox, SOME, signs[-1])))
    for sign in signs:
        await sign.wait()
    return tasks


@pytest.fixture
def environment(worker_environment: dict[str, str], census: Any) -> dict[str, str]:
    return {**worker_environment, **census.environment}


async def test_a_killed_zygote_takes_all_along_and_is_noticed(
    environment: dict[str, str], census: Any
) -> None:
    worker = await Worker.start(sys.executable, env=environment)
    tasks = await hold_all(worker)
    async with worker.child(KIND, {"code": PHASES["idle"]}, limits=SOME) as child:
        await child.receive()
        receiving = asyncio.create_task(child.receive())
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(ChildDied) as caught:
            await receiving
        assert caught.value.reason == "worker"
    await asyncio.gather(*tasks, return_exceptions=True)
    assert worker.alive is False
    with pytest.raises(WorkerError, match="has died"):
        async with worker.child(KIND, {"code": ""}, limits=SOME):
            pass
    assert census.survivors() == []
    await worker.close()


async def test_closing_takes_all_along(environment: dict[str, str], census: Any) -> None:
    worker = await Worker.start(sys.executable, env=environment)
    tasks = await hold_all(worker)
    await worker.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert census.survivors() == []
    await worker.close()


OWNER = """
import asyncio, sys
from musacoder_verifier.worker import Worker
sys.path.insert(0, {folder!r})
import test_worker_orphans as orphans

async def main():
    worker = await Worker.start(sys.executable)
    tasks = await orphans.hold_all(worker)
    print("ready", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""


async def start_owner(environment: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OWNER.format(folder=str(Path(__file__).parent)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )


async def test_a_killed_owner_takes_all_along(
    environment: dict[str, str], census: Any, tmp_path: Path
) -> None:
    owner = await start_owner({**environment, "TMPDIR": str(tmp_path)})
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    assert len(census.alive()) > len(HELD)
    owner.kill()
    await owner.wait()
    assert census.survivors() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", [2, 3])
async def test_an_owner_killed_while_torch_is_imported(
    environment: dict[str, str], census: Any, processes: int
) -> None:
    """At 2 processes the zygote has just begun, at 3 it forks its first child."""
    owner = await start_owner(environment)
    while len(census.alive()) < processes and owner.returncode is None:
        await asyncio.sleep(0)
    owner.kill()
    await owner.wait()
    assert census.survivors() == []


async def descendants_of_zygote(worker: Worker) -> list[psutil.Process]:
    return psutil.Process(worker._process.pid).children(recursive=True)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize("phase", [*PHASES, *FORKING])
async def test_leaving_the_context_leaves_nothing(
    worker: Worker, phase: str, sandbox: bool
) -> None:
    code = {**PHASES, **FORKING}[phase]
    for _ in range(2):
        async with worker.child(KIND, {"code": code}, limits=SOME, sandbox=sandbox) as child:
            await child.receive()
        assert await descendants_of_zygote(worker) == []


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize("phase", [*PHASES, "daemon", "program"])
async def test_a_killed_child_leaves_nothing(worker: Worker, phase: str, sandbox: bool) -> None:
    code = {**PHASES, **FORKING}[phase]
    for _ in range(2):
        async with worker.child(KIND, {"code": code}, limits=SOME, sandbox=sandbox) as child:
            await child.receive()
            os.kill(child.pid, signal.SIGKILL)
            await expect_death(child, signal.SIGKILL)
            assert await descendants_of_zygote(worker) == []


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize("phase", [*PHASES, "daemon", "program"])
async def test_a_killed_supervisor_leaves_nothing(
    worker: Worker, phase: str, sandbox: bool
) -> None:
    code = {**PHASES, **FORKING}[phase]
    async with worker.child(KIND, {"code": code}, limits=SOME, sandbox=sandbox) as child:
        await child.receive()
        os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
        await expect_death(child, signal.SIGKILL)
    assert await descendants_of_zygote(worker) == []


async def expect_death(child: Child, signal_number: int) -> None:
    with pytest.raises(ChildDied) as caught:
        while True:  # messages sent before the end still come
            await child.receive()
    assert caught.value.signal == signal_number
