"""Length-prefixed pickles between the server and its own analysis child.

Pickle is safe here because both ends are this program and nobody else can write to the pipes; no
user's code ever runs in the child.
"""

from __future__ import annotations

import pickle
import struct
from typing import BinaryIO

_HEAD = struct.Struct("!I")
HEAD_SIZE = _HEAD.size


def encode(message: object) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(body)) + body


def body_size(head: bytes) -> int:
    size: int = _HEAD.unpack(head)[0]
    return size


def decode(body: bytes) -> object:
    message: object = pickle.loads(body)
    return message


def read_frame(stream: BinaryIO) -> object | None:
    """The next message, None at the end of the stream."""
    head = stream.read(HEAD_SIZE)
    if len(head) < HEAD_SIZE:
        return None
    body = stream.read(body_size(head))
    return decode(body)
