"""Child: the worker's end of one forked child."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from musacoder_verifier.limits import Limits
from musacoder_verifier.memory_file import MemoryFile

_LOG_HEADER = 8  # layout: musacoder_runtime.log_ring
LOG_BYTES = 1 << 16
_MESSAGE_BYTES = 32 << 20
_EXIT_SECONDS = 5.0  # from the channel's end to the report of the exit


class ChildDied(Exception):
    """The child ended without the message that was waited for.

    `exit_code` or `signal` says how (neither: the worker itself died); `reason` is "memory" or
    "processes" where a limit was passed, "protocol" where the child wrote what is no message,
    "worker" where the worker died, else None, or one line on why the child could not be set up.
    """

    def __init__(
        self,
        exit_code: int | None,
        signal_number: int | None,
        stderr_tail: str,
        reason: str | None = None,
    ) -> None:
        self.exit_code = exit_code
        self.signal = signal_number
        self.stderr_tail = stderr_tail
        self.reason = reason
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.reason == "memory":
            return "the process used more memory than its limit allows"
        if self.reason == "processes":
            return "the process started more processes than its limit allows"
        if self.reason == "protocol":
            return "the process wrote to its channel what is no message"
        if self.reason == "worker":
            return "the runtime worker ended while the process ran"
        if self.reason is not None:
            return f"the process could not be set up: {self.reason}"
        if self.signal is not None:
            try:
                name = signal.Signals(self.signal).name
            except ValueError:
                name = f"signal {self.signal}"
            return f"the process was ended by {name}"
        return f"the process ended with exit status {self.exit_code}"


class ChildTimeout(Exception):
    """No message came in time; the child may still run."""

    def __init__(self, seconds: float, stderr_tail: str) -> None:
        self.seconds = seconds
        self.stderr_tail = stderr_tail
        super().__init__(f"the process gave no answer within {seconds:g} s")


class _Lines(asyncio.Protocol):
    """Splits the stream into lines. What arrived before the connection broke stays readable,
    which asyncio's StreamReader does not promise after a reset."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.closed = False
        self.overlong = False
        self._partial = bytearray()
        self._held = 0
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        searched = len(self._partial)
        self._partial += data
        if b"\n" in data:
            end = self._partial.rindex(b"\n", searched)
            lines = bytes(self._partial[:end]).split(b"\n")
            del self._partial[: end + 1]
            self.lines.extend(lines)
            self._held += end
            self._changed.set()
        if len(self._partial) > _MESSAGE_BYTES:
            self.overlong = True
            self._partial.clear()
            self._changed.set()
            if self._transport is not None:
                self._transport.abort()
        elif self._held > _MESSAGE_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._changed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def drain(self) -> None:
        await self._writable.wait()

    async def next(self) -> bytes | None:
        """The next line, None at the end. Safe to cancel."""
        while not self.lines:
            if self.closed or self.overlong:
                return None
            self._changed.clear()
            await self._changed.wait()
        line = self.lines.popleft()
        if self._held > _MESSAGE_BYTES >= self._held - len(line) and not self.closed:
            assert self._transport is not None
            self._transport.resume_reading()
        self._held -= len(line)
        return line


class Child:
    """Made by `Worker.child`. `pid` is the child's process id as this process sees it; `sandbox`
    says for each layer "on", "off: why" or "unavailable: why"."""

    def __init__(self, number: int, limits: Limits, connection: socket.socket) -> None:
        self.pid = 0
        self.sandbox: Mapping[str, str] = {}
        self.number = number
        self.limits = limits
        # Counts from the start of `main`: a busy machine's slow fork is not the child's fault.
        self.deadline = float("inf")
        self.started = asyncio.Event()
        self.exited = asyncio.Event()
        self.log = MemoryFile(_LOG_HEADER + LOG_BYTES, "musacoder-log")
        self._connection = connection
        self._lines = _Lines()
        self._transport: asyncio.Transport | None = None
        self._status: int | None = None
        self._reason: str | None = None

    async def connect(self) -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: self._lines, sock=self._connection
        )
        self._transport = transport

    def report_started(self, pid: int, sandbox: Mapping[str, str]) -> None:
        self.pid = pid
        self.sandbox = sandbox
        self.deadline = time.monotonic() + self.limits.seconds
        self.started.set()

    def report_exit(self, status: int | None, reason: str | None) -> None:
        """`status` as from waitpid, None when the worker died and nobody knows."""
        self._status = status
        self._reason = reason
        self.exited.set()
        self.started.set()
        if status is None and self._transport is not None:
            self._transport.abort()

    async def send(self, message: dict[str, Any]) -> None:
        """Sends one message; that the child is dead shows in the next `receive`."""
        line = json.dumps(message, ensure_ascii=True, separators=(",", ":"))
        if self._transport is not None and not self._lines.closed:
            self._transport.write(line.encode("ascii") + b"\n")
            await self._lines.drain()

    async def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message, within `timeout` seconds and the child's own limit.

        An exception that left the child's `main` comes as `{"error": {...}}`, see
        musacoder_runtime.failure. Raises ChildDied and ChildTimeout.
        """
        left = self.deadline - time.monotonic()
        wait = left if timeout is None else min(left, timeout)
        try:
            line = await asyncio.wait_for(self._lines.next(), max(0.0, wait))
        except TimeoutError:
            raise self._timeout(wait if wait < left else None) from None
        if line is None:
            raise await self._death()
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise self._died("protocol")
        return message

    async def wait_started(self, seconds: float) -> None:
        """Returns once the child runs its `main`; raises ChildDied, and TimeoutError where that
        takes more than `seconds`."""
        await asyncio.wait_for(self.started.wait(), seconds)
        if not self.pid:
            raise await self._death()

    async def _death(self) -> ChildDied | ChildTimeout:
        try:
            await asyncio.wait_for(self.exited.wait(), _EXIT_SECONDS)
        except TimeoutError:
            return self._died("protocol")  # it lives, but closed or flooded its channel
        if self._reason == "time":
            return self._timeout(None)
        return self._died("protocol" if self._lines.overlong else self._reason)

    def _died(self, reason: str | None) -> ChildDied:
        code = killer = None
        if self._status is not None:
            if os.WIFSIGNALED(self._status):
                killer = os.WTERMSIG(self._status)
            else:
                code = os.WEXITSTATUS(self._status)
        return ChildDied(code, killer, self.stderr_tail(), reason)

    def _timeout(self, seconds: float | None) -> ChildTimeout:
        return ChildTimeout(self.limits.seconds if seconds is None else seconds, self.stderr_tail())

    def stderr_tail(self, size: int = 8192) -> str:
        """The last `size` bytes (at most 64 KiB) of what it printed, stdout and stderr as they
        came. Callable at any time, also after the child's end while its context is open."""
        if self.log.fd < 0:
            return self._last_words
        data = os.pread(self.log.fd, _LOG_HEADER + LOG_BYTES, 0)
        total = int.from_bytes(data[:_LOG_HEADER], "little")
        ring = data[_LOG_HEADER:]
        at = total % LOG_BYTES
        text = ring[:at] if total < LOG_BYTES else ring[at:] + ring[:at]
        return text[-min(size, LOG_BYTES) :].decode("utf-8", "replace")

    _last_words = ""

    def release(self) -> None:
        """Closes what belongs to this end; the last output stays readable."""
        self._last_words = self.stderr_tail()
        self.log.close()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._connection.close()
