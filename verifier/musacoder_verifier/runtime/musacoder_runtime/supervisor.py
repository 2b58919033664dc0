"""The process between zygote and child: process 1 of the child's namespaces.

It keeps the child's last output, watches memory, processes and time, reports how the child ended,
and takes everything that the child started with it: as process 1 by the kernel's own rule, else
by hunting down its descendants.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from musacoder_runtime import forked, limits, linux, process_tree, sandbox
from musacoder_runtime.log_ring import LogRing

_WATCH_SECONDS = 0.05
_GRACE_SECONDS = 2.0  # the worker's own deadline, from the start of `main`, comes first
_FINAL_OUTPUT = 1 << 20  # bytes still taken from a pipe that other processes may keep filling


def enter(request: dict[str, Any], fds: Sequence[int], status: socket.socket) -> None:
    """Runs in a fresh fork of the zygote and does not return.

    `fds`: the channel's socket, the log's memory file, then those for the child. On `status` go
    out {"init": namespaced}, {"temporary": folder} where one must be removed in the end, the
    child's own {"started": ...}, and {"exit": wait status, "reason": None or "memory" |
    "processes" | "time"}; when the other end closes, all ends.
    """
    gc.disable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _close_others({*fds, status.fileno(), 0, 1, 2})
    os.setsid()
    limits.prefer_for_oom_kill()
    asked = limits.Limits.from_json(request["limits"])
    report: sandbox.Report = {}
    if request["sandbox"]:
        report = sandbox.isolate(
            network=asked.network, private_processes=request["access"]["private_processes"]
        )
    if os.fork():
        os._exit(0)
    namespaced = report.get("pid_namespace") == "on"
    status.send(json.dumps({"init": namespaced}).encode())
    linux.adopt_orphans()
    if request["sandbox"]:
        sandbox.furnish(report, memory_bytes=asked.memory_bytes, process_count=asked.process_count)
    request["temporary"] = sandbox.temporary_folder(report)
    if report.get("private_temporary_folder") != "on":
        status.send(json.dumps({"temporary": request["temporary"]}).encode())
    _Supervisor(request, asked, fds, status, report).run()


def _close_others(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


class _Supervisor:
    def __init__(
        self,
        request: dict[str, Any],
        asked: limits.Limits,
        fds: Sequence[int],
        status: socket.socket,
        report: sandbox.Report,
    ) -> None:
        self._asked = asked
        self._temporary = str(request["temporary"])
        self._status = status
        self._ring = LogRing(fds[1])
        os.close(fds[1])
        self._reason: str | None = None
        self._wake, wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_end, False)
        output, output_end = os.pipe()
        own = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            for fd in (self._wake, wake_end, output):
                os.close(fd)
            forked.enter(request, asked, (fds[0], *fds[2:]), status, report, output_end, own)
        os.close(output_end)
        for fd in (fds[0], *fds[2:]):
            os.close(fd)
        os.set_blocking(output, False)
        self._output = output
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._baseline = process_tree.memory_bytes(process_tree.own_pid(), shared=False)

    def run(self) -> None:
        poller = select.poll()
        for fd in (self._status.fileno(), self._output, self._wake):
            poller.register(fd, select.POLLIN)
        deadline = time.monotonic() + self._asked.seconds + _GRACE_SECONDS
        next_watch = time.monotonic()
        ended = _exit_of(self._child)  # before the first poll: its signal may be past already
        while ended is None:
            ready = dict(poller.poll(_WATCH_SECONDS * 1000))
            if self._output in ready and not self._ring.drain(self._output, _FINAL_OUTPUT):
                poller.unregister(self._output)
            if self._wake in ready and signal.SIGTERM in os.read(self._wake, 4096):
                break
            if self._status.fileno() in ready and not self._follow_zygote():
                break
            now = time.monotonic()
            if now >= next_watch:
                next_watch = now + _WATCH_SECONDS
                self._reason = self._reason or self._breach(now > deadline)
                if self._reason:
                    break
            ended = _exit_of(self._child)
        self._ring.drain(self._output, _FINAL_OUTPUT)
        with contextlib.suppress(OSError):
            ended = signal.SIGKILL if ended is None else ended
            self._status.send(json.dumps({"exit": ended, "reason": self._reason}).encode())
        # What a busy machine leaves here goes to the zygote, which hunts it when it hears so.
        clean = os.getpid() == 1 or process_tree.kill_descendants()
        shutil.rmtree(self._temporary, ignore_errors=True)
        os._exit(0 if clean else 1)

    def _follow_zygote(self) -> bool:
        """Takes the zygote's one word, that it has reaped the process between and is the parent
        of this one now. False when its end is closed: it is gone."""
        with contextlib.suppress(ConnectionResetError):
            if self._status.recv(16):
                # Only now: the death of the process between would have counted.
                linux.die_with_parent(signal.SIGKILL if os.getpid() == 1 else signal.SIGTERM)
                return True
        return False

    def _breach(self, late: bool) -> str | None:
        if late:
            return "time"
        pids = process_tree.descendants(process_tree.own_pid())
        if len(pids) > self._asked.process_count:
            return "processes"
        bound = self._asked.memory_bytes
        if bound is not None:
            used = sum(max(0, process_tree.memory_bytes(p) - self._baseline) for p in pids)
            if used > bound + limits.memory_slack():
                return "memory"
        return None


def _exit_of(child: int) -> int | None:
    """Reaps whatever ended; the wait status of `child` once it did."""
    ended = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                ended = status
    return ended
