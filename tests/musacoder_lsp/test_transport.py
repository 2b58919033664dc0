"""The byte streams: any split, any order of readiness, nothing lost (P8, P16)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musacoder_lsp import transport
from musacoder_lsp.transport import ProtocolWriter, open_reader, read_message


def framed(body: bytes) -> bytes:
    return b"content-length: %d\r\nContent-Type: x\r\n\r\n%s" % (len(body), body)


async def read_all(data: bytes, pieces: list[int]) -> list[bytes]:
    reader = asyncio.StreamReader()
    position = 0
    for size in [*pieces, len(data)]:
        reader.feed_data(data[position : position + size])
        position += size
    reader.feed_eof()
    found = []
    while (body := await read_message(reader)) is not None:
        found.append(body)
    return found


@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(1, 40), max_size=20))
def test_messages_survive_any_split(bodies: list[bytes], pieces: list[int]) -> None:
    data = b"".join(map(framed, bodies))
    assert asyncio.run(read_all(data, pieces)) == bodies


def test_the_end_inside_a_message_is_the_end() -> None:
    assert asyncio.run(read_all(framed(b"whole") + framed(b"cut off")[:-3], [])) == [b"whole"]


async def test_a_length_that_is_no_number_is_refused() -> None:
    for head in (b"Content-Length: many\r\n\r\n", b"Content-Length: -5\r\n\r\n"):
        reader = asyncio.StreamReader()
        reader.feed_data(head)
        with pytest.raises(ValueError):
            await read_message(reader)


async def test_a_plain_file_can_be_read_too(tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_bytes(framed(b"{}"))
    reader = await open_reader(os.open(file, os.O_RDONLY))
    assert await read_message(reader) == b"{}" and await read_message(reader) is None


async def test_what_the_pipe_does_not_take_waits_in_order() -> None:
    """P16: a client that does not read must not block the loop."""
    read_fd, write_fd = os.pipe()
    broken: list[bool] = []
    writer = ProtocolWriter(write_fd, lambda: broken.append(True))
    sent = [bytes([65 + number]) * 300_000 for number in range(10)]
    for data in sent:
        writer.write(data)
    stream = await open_reader(read_fd)
    assert await stream.readexactly(3_000_000) == b"".join(sent)
    await writer.drain(1.0)
    os.close(write_fd)
    assert broken == []


async def test_a_client_that_is_gone_is_told_once() -> None:
    read_fd, write_fd = os.pipe()
    broken: list[bool] = []
    writer = ProtocolWriter(write_fd, lambda: broken.append(True))
    os.close(read_fd)
    for _ in range(3):
        writer.write(b"x")
    assert broken == [True]
    os.close(write_fd)


async def test_a_client_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_UNSENT", 3_000_000)
    read_fd, write_fd = os.pipe()
    broken: list[bool] = []
    writer = ProtocolWriter(write_fd, lambda: broken.append(True))
    for _ in range(6):
        writer.write(b"x" * 1_000_000)
    assert broken == [True]
    os.close(read_fd)
    os.close(write_fd)
