"""The zygote: torch imported and nothing else done; forks one child for each request.

It runs no tensor operation, no user code and no device query: whatever starts a thread or a
device here makes children hang or fail. Messages on the control socket are JSON, one a packet:

  in   {"op": "fork", "id", "kind", "limits", "sandbox", "writable", "access"} with the file
       descriptors [channel, log, *extra];  {"op": "kill", "id"}
  out  {"op": "python", "version"}, then {"op": "ready", "torch"} or {"op": "failed", "reason",
       "message"};  {"op": "started", "id", "pid", "sandbox"};  {"op": "exit", "id", "status",
       "reason"} once the child and everything that it started are gone
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
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any

from musacoder_runtime import failure, linux, process_tree, supervisor

_PACKET = 1 << 18
_FDS = 64
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_HUNT_SECONDS = 0.2  # for a supervisor that is not process 1 of a namespace


def serve(control_fd: int) -> None:
    """Runs until the control socket closes."""
    linux.die_with_parent(signal.SIGKILL)
    linux.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    os.chdir("/")
    _tell(control, {"op": "python", "version": sys.version.split()[0]})
    ready = _import_torch()
    _tell(control, ready)
    if ready["op"] == "ready":
        gc.collect()
        gc.freeze()  # a collection in a child would copy every page it touches
        _Zygote(control).run()
        os._exit(0)  # an orderly end of Python takes most of a second once torch is loaded


def _import_torch() -> dict[str, Any]:
    try:
        import torch
    except ModuleNotFoundError as error:
        missing = "torch" if error.name == "torch" else "import"
        return {"op": "failed", "reason": missing, "message": str(error)}
    except BaseException as error:
        report = failure.describe(error)
        return {"op": "failed", "reason": "import", "message": report["message"]}
    return {"op": "ready", "torch": str(torch.__version__)}


def _tell(control: socket.socket, message: dict[str, Any]) -> None:
    try:
        control.send(json.dumps(message).encode())
    except OSError:
        os._exit(0)  # the worker is gone; supervisors follow this process


@dataclass
class _Slot:
    number: int
    status: socket.socket
    middle: int  # forks the supervisor and ends
    init: int | None = None  # the supervisor, once it said so
    namespaced: bool = False
    kill: bool = False
    kill_at: float | None = None
    exit: dict[str, Any] | None = None
    gone: bool = False
    temporary: str | None = None  # a folder that goes when all is over
    clean: bool = False  # the supervisor ended by itself, with nothing left below it


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._slots: dict[int, _Slot] = {}
        self._wake, wake_end = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)

    def run(self) -> None:
        closing: float | None = None
        while closing is None or (self._slots and time.monotonic() < closing):
            hurried = closing is not None or any(s.kill_at for s in self._slots.values())
            ready = {fd for fd, _ in self._poller.poll(20 if hurried else None)}
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._control.fileno() in ready and closing is None and not self._serve_one():
                closing = time.monotonic() + 2.0
                self._poller.unregister(self._control)
                for slot in self._slots.values():
                    self._kill(slot)
            for slot in list(self._slots.values()):
                if slot.status.fileno() in ready:
                    self._read_status(slot)
            self._reap()
            for slot in list(self._slots.values()):
                if slot.kill_at is not None and time.monotonic() > slot.kill_at and slot.init:
                    slot.kill_at = None
                    os.kill(slot.init, signal.SIGKILL)
                if slot.gone:
                    self._finish(slot)
        process_tree.kill_descendants()

    def _serve_one(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, _PACKET, _FDS)
        if not data:
            return False
        request = json.loads(data)
        if request["op"] == "fork":
            self._fork(request, fds)
        elif request["id"] in self._slots:
            self._kill(self._slots[request["id"]])
        return True

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.setblocking(False)
        try:
            middle = os.fork()
        except OSError as error:  # no process or no memory left: this child fails, not the worker
            for fd in (ours.detach(), theirs.detach(), *fds):
                os.close(fd)
            self._report_exit(request["id"], {"exit": 70 << 8, "reason": _one_line(error)})
            return
        if middle == 0:
            try:
                supervisor.enter(request, fds, theirs)
            except BaseException as error:
                with contextlib.suppress(BaseException):
                    theirs.send(json.dumps({"exit": 70 << 8, "reason": _one_line(error)}).encode())
            finally:
                os._exit(70)
        theirs.close()
        for fd in fds:
            os.close(fd)
        self._slots[request["id"]] = _Slot(request["id"], ours, middle)
        self._poller.register(ours, select.POLLIN)

    def _kill(self, slot: _Slot) -> None:
        slot.kill = True
        if slot.init is None or slot.gone:
            return
        if slot.namespaced:
            os.kill(slot.init, signal.SIGKILL)
        else:
            os.kill(slot.init, signal.SIGTERM)
            slot.kill_at = time.monotonic() + _HUNT_SECONDS

    def _read_status(self, slot: _Slot) -> None:
        """Takes what came. The kernel names the sender of each packet, in our numbering."""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while True:
                data, ancillary, _, _ = slot.status.recvmsg(_PACKET, 256)
                if not data:
                    slot.gone = slot.gone or slot.init is None  # it died before its first word
                    break
                sender = _CREDENTIALS.unpack(ancillary[0][2][: _CREDENTIALS.size])[0]
                message = json.loads(data)
                if "init" in message:
                    slot.init, slot.namespaced = sender, message["init"]
                    if slot.kill:
                        self._kill(slot)
                elif "temporary" in message:
                    slot.temporary = message["temporary"]
                elif "started" in message:
                    report = {"op": "started", "id": slot.number, "pid": sender}
                    _tell(self._control, {**report, "sandbox": message["sandbox"]})
                else:
                    slot.exit = message

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                for slot in self._slots.values():
                    self._read_status(slot)
                    if pid == slot.middle and status == 0:
                        with contextlib.suppress(OSError):
                            slot.status.send(b"go")
                    elif pid in (slot.init, slot.middle):
                        slot.gone = True
                        slot.clean = status == 0 or slot.namespaced

    def _hunt_strays(self) -> None:
        """Kills what a supervisor that was itself killed has left to this process, its adopter.

        A supervisor that has not said its name yet is no stray: its session is known.
        """
        deadline = time.monotonic() + _HUNT_SECONDS * 10
        while time.monotonic() < deadline:
            ours = {pid for slot in self._slots.values() for pid in (slot.init, slot.middle)}
            strays = []
            for pid in process_tree.children(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    if pid not in ours and os.getsid(pid) not in ours:
                        strays.append(pid)
            if not strays:
                return
            for stray in strays:
                for pid in (stray, *process_tree.descendants(stray)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.001)

    def _finish(self, slot: _Slot) -> None:
        self._read_status(slot)
        if not slot.clean:
            self._hunt_strays()
        if slot.temporary is not None:
            shutil.rmtree(slot.temporary, ignore_errors=True)
        self._poller.unregister(slot.status)
        slot.status.close()
        del self._slots[slot.number]
        self._report_exit(slot.number, slot.exit or {"exit": int(signal.SIGKILL), "reason": None})

    def _report_exit(self, number: int, report: dict[str, Any]) -> None:
        status, reason = report["exit"], report["reason"]
        _tell(self._control, {"op": "exit", "id": number, "status": status, "reason": reason})


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:500]
