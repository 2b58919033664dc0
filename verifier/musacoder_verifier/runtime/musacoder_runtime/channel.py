"""Channel: JSON lines between a child and the worker that asked for it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

_CHUNK = 1 << 16


class Channel:
    """The child's end. `fds` are the file descriptors that came with the request, in order.

    Only the process that made it speaks: in a copy that the user's code forked, what is sent goes
    nowhere and nothing is received, else two processes would answer one request.
    """

    def __init__(self, connection: socket.socket, fds: Sequence[int] = ()) -> None:
        self.fds = list(fds)
        self._connection = connection
        self._buffer = bytearray()
        self._owner = os.getpid()

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message; what is not JSON raises TypeError or ValueError before a byte is
        sent. NaN and infinities travel as Python's json spells them."""
        line = json.dumps(message, ensure_ascii=True, separators=(",", ":"))
        if os.getpid() == self._owner:
            self._connection.sendall(line.encode("ascii") + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other end is closed. Blocks."""
        if os.getpid() != self._owner:
            return None
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError("a message must be a JSON object")
                return message
            searched = len(self._buffer)
            chunk = self._connection.recv(_CHUNK)
            if not chunk:
                return None
            self._buffer += chunk
