"""Worker, Child and Channel against real processes."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import resource
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from musacoder_verifier.memory_file import MemoryFile
from musacoder_verifier.worker import (
    RUNTIME,
    Child,
    ChildDied,
    ChildTimeout,
    Limits,
    Worker,
    WorkerError,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMITS = Limits(seconds=60, memory_bytes=1 << 30)
KIND = "worker_children.run_code"


@contextlib.asynccontextmanager
async def running(worker: Worker, code: str, **options: Any) -> AsyncIterator[Child]:
    options.setdefault("limits", LIMITS)
    async with worker.child(KIND, {"code": code}, **options) as child:
        yield child


async def answer(worker: Worker, code: str, **options: Any) -> dict[str, Any]:
    async with running(worker, code, **options) as child:
        return await child.receive()


async def death(worker: Worker, code: str, **options: Any) -> ChildDied:
    with pytest.raises(ChildDied) as caught:
        await answer(worker, code, **options)
    return caught.value


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def test_info_describes_the_interpreter_and_its_torch(worker: Worker) -> None:
    info = worker.info
    assert info.python == sys.executable
    assert info.python_version == sys.version.split()[0]
    assert (Path(info.torch_include_dirs[0]) / "ATen" / "ATen.h").exists()
    assert (Path(info.torch_library_dir) / "libtorch_cpu.so").exists()
    assert info.torch_version.split("+")[0].count(".") == 2
    assert set(info.sandbox) >= {"pid_namespace", "landlock", "seccomp", "no_new_privileges"}


async def test_messages_go_both_ways_in_order(worker: Worker) -> None:
    code = "while (m := channel.receive()) is not None: channel.send({'back': m})"
    async with running(worker, code) as child:
        for number in range(50):
            await child.send({"n": number, "text": "\n\u2028é" * number})
        for number in range(50):
            assert await child.receive() == {"back": {"n": number, "text": "\n\u2028é" * number}}


async def test_large_messages_cross_both_ways(worker: Worker) -> None:
    text = "x" * (3 << 20)
    async with running(worker, "channel.send(channel.receive())") as child:
        await child.send({"text": text})
        assert await child.receive() == {"text": text}


async def test_spec_reaches_main(worker: Worker) -> None:
    spec = {"code": "channel.send({'got': spec['more']})", "more": [1, None, "ü"]}
    async with worker.child(KIND, spec, limits=LIMITS) as child:
        assert await child.receive() == {"got": [1, None, "ü"]}


async def test_what_was_sent_before_death_is_received_first(worker: Worker) -> None:
    code = "import os; channel.send({'first': 1}); channel.send({'second': 2}); os._exit(5)"
    async with running(worker, code) as child:
        for _ in range(20):  # unread by the child, so that its end resets the connection
            await child.send({"unread": "x" * 1000})
        await child.exited.wait()
        assert await child.receive() == {"first": 1}
        assert await child.receive() == {"second": 2}
        with pytest.raises(ChildDied) as caught:
            await child.receive()
        assert caught.value.exit_code == 5


async def test_tensor_operations_use_several_threads(worker: Worker) -> None:
    code = (
        "import os, torch\n"
        "torch.set_num_threads(4)\n"
        "a = torch.ones(600, 600)\n"
        "total = float((a @ a).sum())\n"
        "channel.send({'sum': total, 'threads': len(os.listdir('/proc/self/task'))})\n"
    )
    message = await answer(worker, code)
    assert message["sum"] == 600.0**3
    assert message["threads"] >= 4


async def test_memory_files_and_other_fds_are_passed_in_order(worker: Worker) -> None:
    code = (
        "import os\n"
        "first, second = channel.fds\n"
        "os.pwrite(second, os.pread(first, 100, 0)[::-1], 0)\n"
    )
    with MemoryFile(4) as first, MemoryFile(4) as second:
        os.pwrite(first.fd, b"abcd", 0)
        assert await answer(worker, code, fds=[first.fd, second.fd]) == {"done": True}
        assert os.pread(second.fd, 100, 0) == b"dcba"


async def test_a_memory_file_cannot_be_shrunk_by_a_child(worker: Worker) -> None:
    with MemoryFile(4096) as file:
        message = await answer(worker, "import os; os.truncate(channel.fds[0], 0)", fds=[file.fd])
        assert message["error"]["type"] == "PermissionError"
        assert os.fstat(file.fd).st_size == 4096


async def test_a_limit_of_file_sizes_is_named_and_passes(worker: Worker) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(WorkerError, match="ulimit -f"):
            await answer(worker, "pass")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert await answer(worker, "channel.send({'done': True})") == {"done": True}


async def test_an_exception_comes_as_data_with_its_lines(worker: Worker) -> None:
    code = "def inner():\n    return 1 / 0\n\ninner()\n"
    error = (await answer(worker, code))["error"]
    assert error["type"] == "ZeroDivisionError"
    assert error["message"] == "division by zero"
    lines = [(f["file"], f["line"], f["function"]) for f in error["frames"]]
    assert lines[-2:] == [("<code>", 4, "<module>"), ("<code>", 2, "inner")]
    assert error["traceback"].strip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("raise SystemExit(4)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E"),
        ("x = bytearray(8 << 30)", "MemoryError"),
    ],
)
async def test_what_leaves_main_names_its_type(worker: Worker, code: str, kind: str) -> None:
    assert (await answer(worker, code))["error"]["type"] == kind


@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize(
    ("code", "exit_code", "signal_number"),
    [
        ("import os; os._exit(0)", 0, None),
        ("import os; os._exit(139)", 139, None),
        ("import ctypes; ctypes.string_at(0)", None, signal.SIGSEGV),
        ("import os; os.abort()", None, signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 9)", None, signal.SIGKILL),
    ],
)
async def test_deaths_are_told_apart(
    worker: Worker, code: str, exit_code: int | None, signal_number: int | None, sandbox: bool
) -> None:
    died = await death(worker, code, sandbox=sandbox)
    assert (died.exit_code, died.signal, died.reason) == (exit_code, signal_number, None)


async def test_a_crash_leaves_a_trace_in_the_output(worker: Worker) -> None:
    died = await death(worker, "import ctypes\nctypes.string_at(0)")
    assert "Segmentation fault" in died.stderr_tail
    assert '"<code>", line 2' in died.stderr_tail


async def test_output_is_bounded_and_its_end_is_kept(worker: Worker) -> None:
    code = (
        "import os, sys\n"
        "for _ in range(40): os.write(1, b'x' * (1 << 20))\n"
        "sys.stderr.write('from stderr\\n')\n"
        "print('the last line')\n"
    )
    async with running(worker, code) as child:
        assert await child.receive() == {"done": True}
        await child.exited.wait()
        tail = child.stderr_tail()
    assert tail.endswith("from stderr\nthe last line\n")
    assert len(tail) <= 8192
    assert child.stderr_tail() == tail


async def test_what_c_code_prints_is_kept(worker: Worker) -> None:
    code = "import ctypes; ctypes.CDLL(None).printf(b'from a kernel')"
    async with running(worker, code) as child:
        await child.receive()
        await child.exited.wait()
        assert child.stderr_tail() == "from a kernel"
    died = await death(worker, f"{code[:-2]}\\n'); import os; os._exit(1)")
    assert died.stderr_tail == "from a kernel\n"


async def test_output_that_is_no_text_raises_nothing_in_the_child(worker: Worker) -> None:
    async with running(worker, "print('\\ud800'); import os; os.write(2, b'\\xff')") as child:
        assert await child.receive() == {"done": True}
        await child.exited.wait()
        assert child.stderr_tail() == "\\ud800\n\ufffd"


async def test_standard_input_is_empty(worker: Worker) -> None:
    code = "import sys; channel.send({'read': sys.stdin.read()})"
    assert await answer(worker, code) == {"read": ""}


async def test_receive_gives_up_and_the_child_may_go_on(worker: Worker) -> None:
    code = "channel.receive(); channel.send({'late': True})"
    async with running(worker, code) as child:
        with pytest.raises(ChildTimeout):
            await child.receive(timeout=0.05)
        await child.send({})
        assert await child.receive() == {"late": True}


async def test_the_limit_in_seconds_ends_any_wait(worker: Worker) -> None:
    with pytest.raises(ChildTimeout) as caught:
        await answer(worker, "while True: pass", limits=Limits(seconds=0.3))
    assert caught.value.seconds == 0.3


async def test_a_child_past_its_time_dies_even_if_nobody_waits(worker: Worker) -> None:
    async with running(worker, "while True: pass", limits=Limits(seconds=0.1)) as child:
        await child.exited.wait()
        with pytest.raises(ChildTimeout):
            await child.receive()


async def test_what_is_no_message_is_a_death_that_says_so(worker: Worker) -> None:
    code = "import os, socket\n{}\nchannel.receive()"
    find = "fd = channel._connection.fileno()\n"
    for forged in (b"nonsense\n", b"[1, 2]\n", b"\xff\xfe\n"):
        died = await death(worker, code.format(f"{find}os.write(fd, {forged!r})"))
        assert died.reason == "protocol"


async def test_a_flood_without_end_of_line_is_cut_off(worker: Worker) -> None:
    code = "while True: channel._connection.sendall(b'x' * (1 << 20))"
    assert (await death(worker, code)).reason == "protocol"


async def test_a_flood_of_messages_waits_for_its_reader(worker: Worker) -> None:
    code = "for n in range(60): channel.send({'n': n, 'pad': 'x' * (1 << 20)})"
    async with running(worker, code) as child:
        with pytest.raises(TimeoutError):  # 60 MiB are more than this side takes unread
            await asyncio.wait_for(child.exited.wait(), 1.0)
        for number in range(60):
            assert (await child.receive())["n"] == number


async def test_only_the_original_answers_when_user_code_forks(worker: Worker) -> None:
    limits = Limits(seconds=60, processes="some")
    code = "import os; os.fork(); os.fork()"
    async with running(worker, code, limits=limits) as child:
        assert await child.receive() == {"done": True}
        with pytest.raises(ChildDied) as caught:
            await child.receive()
        assert caught.value.exit_code == 0


async def test_an_unknown_kind_is_an_error_message(worker: Worker) -> None:
    async with worker.child("no_such_kind", {}, limits=LIMITS) as child:
        assert (await child.receive())["error"]["type"] == "ModuleNotFoundError"


async def test_many_children_at_once_and_nothing_leaks(worker: Worker) -> None:
    def open_files(pid: int) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    async def once(number: int) -> None:
        got = await answer(worker, f"channel.send({{'n': {number}}})")
        assert got == {"n": number}

    zygote = worker._process.pid
    await once(0)
    before = open_files(os.getpid()), open_files(zygote)
    for _ in range(3):
        await asyncio.gather(*(once(number) for number in range(8)))
    assert (open_files(os.getpid()), open_files(zygote)) == before


async def test_a_cancelled_start_leaves_the_worker_usable(worker: Worker) -> None:
    for _ in range(5):
        task = asyncio.create_task(answer(worker, "while True: pass"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await answer(worker, "") == {"done": True}
    assert worker._children == {}


async def test_the_interpreter_is_missing() -> None:
    with pytest.raises(WorkerError, match=r"^the Python interpreter /no/such/python does not"):
        await Worker.start("/no/such/python")


async def test_the_interpreter_is_no_python(tmp_path: Path) -> None:
    for name, text, reason in (
        ("quiet", "#!/bin/sh\nexit 0\n", r"exit status 0\)"),
        ("noisy", "#!/bin/sh\necho 'not today' >&2\nexit 7\n", r"exit status 7\): not today"),
    ):
        path = executable(tmp_path / name, text)
        with pytest.raises(WorkerError, match=f"did not start as a Python.*{reason}"):
            await Worker.start(path)
    path = executable(tmp_path / "garbage", "\x7fELF nonsense")
    with pytest.raises(WorkerError, match="cannot be started"):
        await Worker.start(path)


async def test_the_interpreter_is_too_old(tmp_path: Path) -> None:
    runner = f"""#!{sys.executable}
import sys, runpy
sys.version_info = (3, 6, 9)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    path = executable(tmp_path / "python", runner)
    with pytest.raises(WorkerError, match=r"is Python 3\.6, which is too old"):
        await Worker.start(path)


async def test_the_entry_is_readable_for_old_interpreters() -> None:
    """Python 2.7 and 3.6 must get as far as saying that they are too old."""
    for node in ast.walk(ast.parse((RUNTIME / "zygote.py").read_bytes())):
        assert not isinstance(node, (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr))
        assert getattr(node, "annotation", None) is None
        assert getattr(node, "returns", None) is None
        assert getattr(node, "module", None) != "__future__"


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')", "install torch$"),
        ("raise ImportError('libcudart.so.13: cannot open')", "cannot be imported.*libcudart"),
        ("import time; time.sleep(1000)", "did not import torch within 1 s"),
        ("import os; os._exit(1)", "exit status 1"),
        ("__version__ = '1.13.1'", r"torch 1\.13\.1 .* is too old"),
    ],
)
async def test_torch_is_missing_or_broken(
    tmp_path: Path, census: Any, module: str, sentence: str
) -> None:
    (tmp_path / "torch.py").write_text(module)
    env = {"PYTHONPATH": str(tmp_path), **census.environment}
    with pytest.raises(WorkerError, match=sentence) as caught:
        await Worker.start(sys.executable, env=env, timeout=1.0 if "sleep" in module else 60.0)
    assert "\n" not in str(caught.value)
