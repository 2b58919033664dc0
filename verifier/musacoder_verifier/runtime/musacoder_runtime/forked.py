"""The child itself: sets itself up, narrows itself, runs `main(channel, spec)`, and ends."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from musacoder_runtime import failure, limits, linux, sandbox
from musacoder_runtime.channel import Channel

_SET_UP_FAILED = 70  # exit status


def enter(
    request: dict[str, Any],
    asked: limits.Limits,
    fds: Sequence[int],
    status: socket.socket,
    report: sandbox.Report,
    output: int,
    parent: int,
) -> None:
    """Does not return. `fds`: the channel's socket, then those for `main`; `output` takes the
    place of file descriptors 1 and 2."""
    exit_status = _SET_UP_FAILED
    try:
        _set_up(request, asked, report, output, parent)
        status.send(json.dumps({"started": True, "sandbox": report}).encode())
        status.close()
        exit_status = _run(request["kind"], Channel(socket.socket(fileno=fds[0]), fds[1:]))
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, failure.describe(error)["traceback"].encode("utf-8", "replace"))
    finally:
        os._exit(exit_status)


def _set_up(
    request: dict[str, Any],
    asked: limits.Limits,
    report: sandbox.Report,
    output: int,
    parent: int,
) -> None:
    os.setsid()
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_SET_UP_FAILED)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    faulthandler.enable(file=2)
    # Lines reach the log before a crash; what is not text of this encoding does not raise.
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    linux.line_buffer_c_output()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    report["limits"] = limits.apply(asked)
    if not request["sandbox"]:
        report["sandbox"] = "off: switched off by the caller"
    tempfile.tempdir = None
    os.environ["TMPDIR"] = request["temporary"]
    os.chdir(request["temporary"])
    if request["sandbox"]:
        access = request["access"]
        places = [*request["writable"], *access["files"], request["temporary"]]
        sandbox.narrow(report, asked, places, local_server=access["local_server"])


def _run(kind: str, channel: Channel) -> int:
    """Exit status: 0 when `main` returned, 1 when an exception left it (and was sent)."""
    try:
        spec = channel.receive()
        if spec is None:
            return 0
        name = kind if "." in kind else f"musacoder_runtime.children.{kind}"
        importlib.import_module(name).main(channel, spec)
    except BaseException as error:
        _flush()  # what it printed belongs to the report
        with contextlib.suppress(OSError):  # nobody listens any more
            channel.send({"error": failure.describe(error)})
        return 1
    finally:
        _flush()
    return 0


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    linux.flush_c_output()
