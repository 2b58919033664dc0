"""The stream of messages, however the kernel cuts it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from musacoder_runtime.channel import Channel
from musacoder_runtime.log_ring import HEADER, LogRing
from musacoder_verifier.child import _Lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=6)


def encode(messages: list[dict[str, Any]]) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs)
        for message in messages:
            channel.send(message)
        theirs.shutdown(socket.SHUT_WR)
        data = b""
        while part := ours.recv(1 << 20):
            data += part
    return data


@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 40), min_size=1))
def test_lines_come_out_whole_whatever_the_cuts(
    messages: list[dict[str, Any]], cuts: list[int]
) -> None:
    async def receive() -> list[Any]:
        lines = _Lines()
        data, turn = encode(messages), 0
        while data:
            size = cuts[turn % len(cuts)]
            lines.data_received(data[:size])
            data, turn = data[size:], turn + 1
        lines.connection_lost(ConnectionResetError())
        received = []
        while (line := await lines.next()) is not None:
            received.append(json.loads(line))
        return received

    assert asyncio.run(receive()) == messages


@given(messages=MESSAGES)
def test_the_channel_reads_what_was_sent(messages: list[dict[str, Any]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for message in messages:
            ours.sendall(json.dumps(message, ensure_ascii=True).encode() + b"\n")
        ours.close()
        channel = Channel(theirs)
        assert [channel.receive() for _ in messages] == messages
        assert channel.receive() is None


@given(
    writes=st.lists(st.binary(max_size=70), max_size=20),
    size=st.integers(1, 64),
)
def test_the_log_keeps_the_last_bytes(writes: list[bytes], size: int) -> None:
    fd = os.memfd_create("log")
    try:
        os.ftruncate(fd, HEADER + size)
        ring = LogRing(fd)
        for data in writes:
            ring.write(data)
        whole = b"".join(writes)
        raw = os.pread(fd, HEADER + size, 0)
        total = int.from_bytes(raw[:HEADER], "little")
        assert total == len(whole)
        kept = raw[HEADER:]
        at = total % size
        assert (kept[:at] if total < size else kept[at:] + kept[:at]) == whole[-size:]
    finally:
        os.close(fd)
