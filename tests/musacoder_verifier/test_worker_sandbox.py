"""What a child of the runtime worker cannot do, by layer; each layer is skipped where this kernel
lacks it, and then the worker's info must say so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from musacoder_verifier.worker import ChildDied, Limits, Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

KIND = "worker_children.run_code"
ALONE = Limits(seconds=60, memory_bytes=1 << 30)
SOME = Limits(seconds=60, memory_bytes=1 << 30, processes="some", network=True)


def need(worker: Worker, layer: str) -> None:
    if worker.info.sandbox[layer] != "on":
        assert worker.info.sandbox[layer].startswith("unavailable: ")
        pytest.skip(f"{layer}: {worker.info.sandbox[layer]}")


async def answer(
    worker: Worker, code: str, limits: Limits = ALONE, **options: Any
) -> dict[str, Any]:
    async with worker.child(KIND, {"code": code}, limits=limits, **options) as child:
        return await child.receive()


async def refused(worker: Worker, code: str, limits: Limits = ALONE, **options: Any) -> str:
    message = await answer(worker, code, limits, **options)
    assert "error" in message, message
    kind = message["error"]["type"]
    assert isinstance(kind, str)
    return kind


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.fork()",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import multiprocessing as m; p = m.get_context('fork').Process(); p.start()",
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import os; os.kill(1, 0)",
        "import os; os.kill(-1, 9)",
        "import os; os.setsid()",
        "import os; os.pidfd_open(1)",
    ],
)
async def test_generated_code_starts_and_reaches_nothing(worker: Worker, code: str) -> None:
    need(worker, "seccomp")
    assert await refused(worker, code) == "PermissionError"


@pytest.mark.parametrize(
    ("number", "name"), [(101, "ptrace"), (310, "process_vm_readv"), (298, "perf_event_open")]
)
@pytest.mark.parametrize("limits", [ALONE, SOME], ids=["none", "some"])
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86_64")
async def test_no_child_looks_into_others(
    worker: Worker, number: int, name: str, limits: Limits
) -> None:
    need(worker, "seccomp")
    code = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"libc.syscall({number}, 0, 0, 0, 0, 0, 0)\n"
        "channel.send({'errno': ctypes.get_errno()})\n"
    )
    assert await answer(worker, code, limits) == {"errno": 1}, name


@pytest.mark.parametrize("limits", [ALONE, SOME], ids=["none", "some"])
async def test_files_are_written_only_where_allowed(
    worker: Worker, tmp_path: Path, limits: Limits
) -> None:
    need(worker, "landlock")
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    kept = tmp_path / "kept"
    kept.write_text("kept")
    for code in (
        f"open({str(kept)!r}, 'w')",
        f"import os; os.truncate({str(kept)!r}, 0)",
        f"import os; os.unlink({str(kept)!r})",
        f"import os; os.rename({str(kept)!r}, {str(allowed / 'moved')!r})",
        f"import os; os.symlink('/etc', {str(tmp_path / 'link')!r})",
        f"import os; os.mkdir({str(tmp_path / 'folder')!r})",
    ):
        assert await refused(worker, code, limits, writable=[str(allowed)]) in (
            "PermissionError",
            "OSError",
        )
    assert kept.read_text() == "kept"
    assert {p.name for p in tmp_path.iterdir()} == {"allowed", "kept"}
    code = f"open({str(allowed / 'new')!r}, 'w').write(open({str(kept)!r}).read())"
    assert await answer(worker, code, limits, writable=[str(allowed)]) == {"done": True}
    assert (allowed / "new").read_text() == "kept"


async def test_a_single_file_can_be_writable(worker: Worker, tmp_path: Path) -> None:
    need(worker, "landlock")
    file = tmp_path / "file"
    file.write_text("")
    code = f"open({str(file)!r}, 'w').write('x')"
    assert await answer(worker, code, writable=[str(file)]) == {"done": True}
    assert file.read_text() == "x"


async def test_the_temporary_folder_is_private_and_leaves_nothing(worker: Worker) -> None:
    code = (
        "import os, tempfile\n"
        "handle, path = tempfile.mkstemp()\n"
        "os.write(handle, b'x')\n"
        "channel.send({'path': path, 'beside': os.listdir(os.path.dirname(path))})\n"
    )
    first, second = await answer(worker, code), await answer(worker, code)
    for message in (first, second):
        assert len(message["beside"]) == 1
        assert not Path(message["path"]).exists()


async def test_other_processes_are_out_of_sight(worker: Worker) -> None:
    need(worker, "private_proc")
    code = "import os; channel.send({'pids': [p for p in os.listdir('/proc') if p.isdigit()]})"
    assert (await answer(worker, code))["pids"] == ["1", "2"]


async def test_no_capability_is_left(worker: Worker) -> None:
    need(worker, "no_capabilities")
    code = "channel.send({'status': open('/proc/self/status').read()})"
    status = (await answer(worker, code, SOME))["status"]
    values = [line.split()[1] for line in status.splitlines() if line.startswith("Cap")]
    assert len(values) == 5
    assert {int(value, 16) for value in values} == {0}


async def test_user_code_may_fork_and_run_programs(worker: Worker) -> None:
    code = (
        "import subprocess, torch.utils.data as data\n"
        "text = subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout\n"
        "loader = data.DataLoader(list(range(8)), batch_size=4, num_workers=2)\n"
        "channel.send({'text': text, 'sum': sum(int(b.sum()) for b in loader)})\n"
    )
    assert await answer(worker, code, SOME) == {"text": "hi\n", "sum": 28}


async def test_user_code_without_network_still_has_unix_sockets(worker: Worker) -> None:
    need(worker, "seccomp")
    limits = Limits(seconds=60, processes="some", network=False)
    assert await refused(worker, "import socket; socket.socket()", limits) == "PermissionError"
    code = "import socket; socket.socket(socket.AF_UNIX); socket.socketpair()"
    assert await answer(worker, code, limits) == {"done": True}


@pytest.mark.parametrize("sandbox", [True, False])
async def test_a_fork_bomb_ends_with_its_child(worker: Worker, sandbox: bool) -> None:
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    limits = Limits(seconds=30, processes="some", process_count=40)
    with pytest.raises(ChildDied) as caught:
        await answer(worker, code, limits, sandbox=sandbox)
    assert caught.value.reason == "processes"
    assert psutil.Process(worker._process.pid).children(recursive=True) == []
    assert await answer(worker, "") == {"done": True}


async def test_allocating_everything_is_an_error_on_the_allocating_line(worker: Worker) -> None:
    code = "import torch\nkept = []\nwhile True: kept.append(torch.ones(1 << 25))\n"
    error = (await answer(worker, code, Limits(seconds=60, memory_bytes=1 << 28)))["error"]
    assert "allocate" in error["message"]
    assert error["frames"][-1]["line"] == 3


async def test_shared_memory_counts_as_well(worker: Worker) -> None:
    code = (
        "import mmap\n"
        "m = mmap.mmap(-1, 8 << 30)\n"
        "for at in range(0, 8 << 30, 1 << 20): m[at : at + (1 << 20)] = bytes(1 << 20)\n"
    )
    with pytest.raises(ChildDied) as caught:
        await answer(worker, code, Limits(seconds=60, memory_bytes=1 << 28))
    assert caught.value.reason == "memory"


async def test_the_size_of_files_is_bounded(worker: Worker) -> None:
    code = (
        "import tempfile\n"
        "with tempfile.TemporaryFile() as file:\n"
        "    for _ in range(8): file.write(bytes(1 << 20))\n"
    )
    limits = Limits(seconds=60, file_bytes=4 << 20)
    assert await refused(worker, code, limits) == "OSError"


async def test_modules_that_probe_the_system_import_in_the_narrowest_child(
    worker: Worker,
) -> None:
    code = "import asyncio, multiprocessing, platform, torch.utils.cpp_extension, torch._inductor"
    assert await answer(worker, code) == {"done": True}


async def test_without_sandbox_every_layer_says_so(worker: Worker) -> None:
    async with worker.child(KIND, {"code": ""}, limits=ALONE, sandbox=False) as child:
        assert child.sandbox == {"limits": "on", "sandbox": "off: switched off by the caller"}
