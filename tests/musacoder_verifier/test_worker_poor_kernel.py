"""A kernel, or a container's own filter, that refuses namespaces, landlock or seccomp: children
still run, still die, and each missing layer is named."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import psutil
from musacoder_verifier.worker import Limits, Worker

KIND = "worker_children.run_code"
RUNTIME = Path(__file__).parents[2] / "verifier" / "musacoder_verifier" / "runtime"

# An interpreter in which the named system calls fail, as under docker's default filter.
REFUSING = """#!{python}
import errno, os, sys
sys.path.insert(0, {runtime!r})
from musacoder_runtime import linux, seccomp
column = ["x86_64", "aarch64"].index(linux.machine())
numbers = [seccomp._NUMBERS["unshare"][column], seccomp._NUMBERS["mount"][column], 444]
rows = [(0x20, 0, 0, 0), *seccomp._refuse(numbers, errno.EPERM), (0x06, 0, 0, 0x7FFF0000)]
linux.set_no_new_privileges()
linux.install_filter(rows)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


async def test_missing_layers_are_named_and_children_still_die(
    tmp_path: Path, worker_environment: dict[str, str]
) -> None:
    python = tmp_path / "python"
    python.write_text(REFUSING.format(python=sys.executable, runtime=str(RUNTIME)))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    worker = await Worker.start(str(python), env=worker_environment)
    try:
        for layer in ("user_namespace", "pid_namespace", "mount_namespace", "landlock"):
            reason = worker.info.sandbox[layer]
            assert reason.startswith("unavailable: ") and "not permitted" in reason
        assert worker.info.sandbox["seccomp"] == "on"
        assert worker.info.sandbox["no_new_privileges"] == "on"
        zygote = psutil.Process(worker._process.pid)

        code = (
            "import os, tempfile, time\n"
            "os.write(tempfile.mkstemp()[0], b'x')\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    while True: time.sleep(100)\n"
            "channel.send({'temporary': tempfile.gettempdir()}); channel.receive()"
        )
        limits = Limits(seconds=60, processes="some")
        async with worker.child(KIND, {"code": code}, limits=limits) as child:
            temporary = Path((await child.receive())["temporary"])
            assert temporary.is_dir()
            assert len(zygote.children(recursive=True)) == 3
        assert zygote.children(recursive=True) == []

        limits = Limits(seconds=60)
        async with worker.child(KIND, {"code": "import os; os.fork()"}, limits=limits) as child:
            assert (await child.receive())["error"]["type"] == "PermissionError"
    finally:
        await worker.close()
    assert not temporary.exists()
