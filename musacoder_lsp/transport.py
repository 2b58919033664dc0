"""The byte streams of the protocol: fd 1 guarded, nothing blocking, no thread."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import Callable

# Above this many unsent bytes the client has stopped reading for good. Waiting would only fill
# the memory of a process that nobody listens to.
MAX_UNSENT = 256 * 1024 * 1024
_READ_LIMIT = 4 * 1024 * 1024
_PIPE_BYTES = 1024 * 1024


def claim_stdout() -> int:
    """Takes fd 1 for the protocol and gives everyone else fd 2 in its place.

    Must run before anything else may print: one stray byte on the protocol's stream makes a
    client lose the answer that follows. Returns the descriptor to write the protocol to.
    """
    sys.stdout.flush()
    protocol = os.dup(1)
    os.set_inheritable(protocol, False)
    os.dup2(2, 1)
    return protocol


def claim_stdin() -> int:
    """Takes fd 0 for the protocol; whoever else reads stdin, a child above all, reads nothing."""
    protocol = os.dup(0)
    os.set_inheritable(protocol, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return protocol


async def open_reader(fd: int) -> asyncio.StreamReader:
    """A reader of `fd` on the running loop; end of file when the client is gone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_LIMIT, loop=loop)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        # The loop cannot wait for a plain file, which is always ready anyway.
        with os.fdopen(fd, "rb") as stream:
            reader.feed_data(stream.read())
        reader.feed_eof()
        return reader
    pipe = os.fdopen(fd, "rb", buffering=0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
    return reader


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next message, None at the end of the stream.

    Raises ValueError where a header block announces no usable length: what follows can then not
    be told apart from bodies.
    """
    length: int | None = None
    while True:
        try:
            line = await reader.readline()
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None
        if line.strip():
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        elif length is not None:
            break
    if length < 0:
        raise ValueError(f"negative Content-Length {length}")
    try:
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _widen(fd: int) -> None:
    """Gives a pipe room for the lenses of a long file, which would otherwise cross in a dozen
    turns of writer and reader. What the system refuses stays as it is."""
    if stat.S_ISFIFO(os.fstat(fd).st_mode) and hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class ProtocolWriter:
    """Writes messages whole and in order without ever blocking the loop.

    What the pipe does not take at once waits in memory. `on_broken` is called once when the
    client has closed its end or has let more than MAX_UNSENT bytes pile up.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._unsent = bytearray()
        self._waiting = False
        self._broken = False
        self._writable = not stat.S_ISREG(os.fstat(fd).st_mode)
        if self._writable:
            os.set_blocking(fd, False)
            _widen(fd)

    def write(self, data: bytes) -> None:
        if self._broken:
            return
        self._unsent += data
        if len(self._unsent) > MAX_UNSENT:
            self._break()
        elif not self._waiting:
            self._flush()

    def close(self) -> None:
        """Drops what was not sent; see `drain`."""
        self._stop_waiting()

    async def drain(self, seconds: float) -> None:
        """Waits until all is sent, for at most `seconds`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._unsent and not self._broken and loop.time() < end:
            await asyncio.sleep(0.005)

    def _flush(self) -> None:
        try:
            while self._unsent:
                sent = os.write(self._fd, self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            if not self._waiting:
                asyncio.get_running_loop().add_writer(self._fd, self._flush)
                self._waiting = True
            return
        except OSError:
            self._break()
            return
        self._stop_waiting()

    def _break(self) -> None:
        self._broken = True
        self._unsent.clear()
        self._stop_waiting()
        self._on_broken()

    def _stop_waiting(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._waiting = False
