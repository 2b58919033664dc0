"""The runtime worker: a zygote in the user's interpreter, and the children that it forks.

Everything here runs on one asyncio loop and never blocks it. The zygote dies with this process
(PR_SET_PDEATHSIG, and the end of its control socket), each child with the zygote.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from musacoder_verifier.child import Child, ChildDied, ChildTimeout
from musacoder_verifier.limits import DeviceAccess, Limits

__all__ = [
    "Child", "ChildDied", "ChildTimeout", "DeviceAccess", "Limits", "Worker", "WorkerError",
    "WorkerInfo",
]  # fmt: skip

RUNTIME = Path(__file__).parent / "runtime"
_PACKET = 1 << 18
_TOO_OLD = 64  # runtime/zygote.py
_OLDEST_TORCH = (2, 2)
_FORK_SECONDS = 60.0
_STOP_SECONDS = 3.0
_OUTPUT_KEPT = 8192


class WorkerError(Exception):
    """The runtime worker cannot start or has died: one sentence for the user."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """The user's interpreter and its torch, as a child of the worker found them.

    `sandbox` gives for each layer of a candidate's sandbox "on" or "unavailable: why".
    """

    python: str
    python_version: str
    python_implementation: str
    python_include_dirs: tuple[str, ...]
    extension_suffix: str
    torch_version: str
    torch_path: str
    torch_include_dirs: tuple[str, ...]
    torch_library_dir: str
    cxx11_abi: bool
    cuda_version: str | None
    hip_version: str | None
    cpu_capability: str
    sandbox: Mapping[str, str] = field(default_factory=dict)


class Worker:
    """One zygote: the user's interpreter, torch imported, nothing else done."""

    info: WorkerInfo

    def __init__(
        self,
        python: str,
        process: asyncio.subprocess.Process,
        control: socket.socket,
        access: DeviceAccess,
    ) -> None:
        self._python = python
        self._access = access
        self._process = process
        self._control = control
        self._children: dict[int, Child] = {}
        self._count = 0
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self._greetings: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._output = bytearray()
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._keep_output())
        self._loop.add_reader(control.fileno(), self._read_control)
        self._alive = True

    @classmethod
    async def start(
        cls,
        python: str,
        *,
        env: Mapping[str, str] | None = None,
        access: DeviceAccess | None = None,
        timeout: float = 120.0,
    ) -> Worker:
        """Starts `python` (a path, or a name on PATH) with `env` added to this environment, and
        returns once torch is imported there, at most `timeout` seconds later. `access`: what its
        children need for their device.

        Raises WorkerError. The zygote dies with the calling thread, so call it from the thread
        that runs the loop for as long as the worker is needed.
        """
        if not sys.platform.startswith("linux"):
            raise WorkerError(f"kernels cannot be verified on {sys.platform}, only on Linux")
        found = shutil.which(os.path.expanduser(python))  # noqa: PTH111 (no Path: keeps links)
        if found is None:
            raise WorkerError(
                f"the Python interpreter {python} does not exist or is not executable; "
                "set musacoder.python to one that has torch"
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            process = await asyncio.create_subprocess_exec(
                found,
                str(RUNTIME / "zygote.py"),
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException as error:
            ours.close()
            if not isinstance(error, OSError):
                raise
            raise WorkerError(
                f"the Python interpreter {found} cannot be started: {error.strerror}; "
                "set musacoder.python to one that has torch"
            ) from error
        finally:
            theirs.close()
        worker = cls(found, process, ours, access or DeviceAccess())
        try:
            async with asyncio.timeout(timeout):
                await worker._greet()
                await worker._describe()
        except TimeoutError:
            worker._kill()  # it does not listen yet
            await worker.close()
            raise WorkerError(
                f"{found} did not import torch within {timeout:g} s; "
                f"try it by hand: {found} -c 'import torch'"
            ) from None
        except BaseException:
            worker._kill()
            await worker.close()
            raise
        return worker

    @property
    def pid(self) -> int:
        """Process id of the zygote."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the zygote is dead; a new Worker must be started then."""
        return self._alive

    async def _greet(self) -> None:
        first = await self._greetings.get()
        if first is None:
            raise await self._not_python()
        ready = await self._greetings.get()
        if ready is None:
            raise await self._not_python()
        install = f"{self._python} -m pip install torch"
        if ready["op"] == "ready":
            version = tuple(int(p) for p in ready["torch"].split(".")[:2] if p.isdigit())
            if version < _OLDEST_TORCH:
                raise WorkerError(
                    f"torch {ready['torch']} in {self._python} is too old, 2.2 or newer is "
                    f"needed; install it with: {install} --upgrade"
                )
        elif ready["reason"] == "torch":
            raise WorkerError(
                f"torch is not installed in {self._python}; install it with: {install}"
            )
        else:
            message = " ".join(ready["message"].split())
            raise WorkerError(
                f"torch cannot be imported in {self._python}: {message}; "
                f"try it by hand: {self._python} -c 'import torch'"
            )

    async def _not_python(self) -> WorkerError:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
            await asyncio.wait_for(self._reading, _STOP_SECONDS)
        said = self._output.decode("utf-8", "replace").strip().splitlines()
        if self._process.returncode == _TOO_OLD and said:
            return WorkerError(
                f"{self._python} is Python {said[-1]}, which is too old; "
                "set musacoder.python to Python 3.9 or newer with torch"
            )
        last = f": {said[-1][:200]}" if said else ""
        return WorkerError(
            f"{self._python} did not start as a Python interpreter "
            f"(exit status {self._process.returncode}){last}; "
            "set musacoder.python to one that has torch"
        )

    async def _describe(self) -> None:
        try:
            async with self.child("describe", {}, limits=Limits(seconds=60.0)) as child:
                answer = await child.receive()
                if "error" in answer:
                    last = answer["error"]["traceback"].strip().splitlines()[-1:]
                    raise WorkerError(f"torch in {self._python} does not work: {''.join(last)}")
        except (ChildDied, ChildTimeout) as error:
            raise WorkerError(f"{self._python} cannot fork a working child: {error}") from error
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in answer.items()
        }
        self.info = WorkerInfo(**fields, sandbox=dict(child.sandbox))
        proc = child.sandbox.get("private_proc", "on")
        if self._access.files and proc != "on":
            # A driver that finds no own process in /proc does not start.
            self._access = replace(self._access, private_processes=False)

    @asynccontextmanager
    async def child(
        self,
        kind: str,
        spec: dict[str, Any],
        *,
        limits: Limits,
        sandbox: bool = True,
        writable: Sequence[str] = (),
        fds: Sequence[int] = (),
    ) -> AsyncIterator[Child]:
        """Forks a child that runs `main(channel, spec)` of `musacoder_runtime.children.<kind>`
        (of the module `kind` itself where it has a dot).

        `writable` names folders and files that it may write beside its own temporary folder;
        `fds` arrive as `channel.fds`. Leaving the context kills the child and everything that it
        started, and waits until all are gone. Raises WorkerError where the zygote is dead or
        stuck, ChildDied where the child does not get as far as `main`.
        """
        if not self._alive:
            raise WorkerError(
                f"the runtime worker in {self._python} has died; it must be restarted"
            )
        self._count += 1
        ours, theirs = socket.socketpair()
        try:
            child = Child(self._count, limits, ours)
        except OSError as error:
            ours.close()
            theirs.close()
            raise WorkerError(
                f"no memory file for a child's output can be made: {error.strerror}; raise the "
                "limit of file sizes (ulimit -f) or free memory"
            ) from error
        self._children[child.number] = child
        request = {
            "op": "fork",
            "id": child.number,
            "kind": kind,
            "limits": asdict(limits),
            "sandbox": sandbox,
            "writable": list(writable),
            "access": asdict(self._access),
        }
        passed = [os.dup(fd) for fd in (theirs.fileno(), child.log.fd, *fds)]
        theirs.close()
        try:
            self._send_control(request, passed)
            await child.connect()
            try:
                await child.wait_started(_FORK_SECONDS)
            except TimeoutError:
                raise WorkerError(
                    f"the runtime worker in {self._python} did not start a process within "
                    f"{_FORK_SECONDS:g} s; the machine may be overloaded"
                ) from None
            await child.send(spec)
            yield child
        finally:
            try:
                await self._end(child)
            finally:
                self._children.pop(child.number, None)
                child.release()

    def end_soon(self, child: Child) -> None:
        """Kills a child without waiting for its end, which leaving its context does."""
        if not child.exited.is_set():
            self._send_control({"op": "kill", "id": child.number}, [])

    async def _end(self, child: Child) -> None:
        if child.exited.is_set():
            return
        self.end_soon(child)
        try:
            await asyncio.wait_for(child.exited.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._kill()  # a zygote that does not answer takes its children along
            await child.exited.wait()

    def _send_control(self, message: dict[str, Any], fds: list[int]) -> None:
        """Queues one packet; closes `fds` once it is sent or can no longer be."""
        self._outgoing.append((json.dumps(message).encode(), fds))
        self._flush()

    def _flush(self) -> None:
        while self._outgoing:
            data, fds = self._outgoing[0]
            if self._alive:
                try:
                    socket.send_fds(self._control, [data], fds)
                except BlockingIOError:
                    self._loop.add_writer(self._control.fileno(), self._flush)
                    return
                except OSError:
                    self._lost()
                    return
            self._outgoing.popleft()
            for fd in fds:
                os.close(fd)
        if self._alive:
            self._loop.remove_writer(self._control.fileno())

    def _read_control(self) -> None:
        for _ in range(64):  # then let others run
            try:
                data = self._control.recv(_PACKET)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lost()
                return
            message = json.loads(data)
            child = self._children.get(message.get("id", -1))
            if message["op"] == "started":
                if child is not None:
                    child.report_started(message["pid"], message["sandbox"])
            elif message["op"] == "exit":
                if child is not None:
                    child.report_exit(message["status"], message["reason"])
            else:
                self._greetings.put_nowait(message)

    def _lost(self) -> None:
        """The zygote is dead, or as good as dead."""
        if not self._alive:
            return
        self._alive = False
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        self._flush()
        self._greetings.put_nowait(None)
        for child in list(self._children.values()):
            if not child.exited.is_set():
                child.report_exit(None, "worker")

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._lost()

    async def _keep_output(self) -> None:
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(1 << 16):
            self._output += data
            del self._output[:-_OUTPUT_KEPT]

    async def close(self) -> None:
        """Ends the zygote and its children and waits for it. May be called twice."""
        self._lost()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._kill()
            await self._process.wait()
        finally:
            self._reading.cancel()
