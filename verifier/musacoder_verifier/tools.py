"""Running toolchain programs: bounded in time and output, at low priority, never orphaned."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_GUARD = Path(__file__).with_name("tool_guard.py")
_OUTPUT_BYTES = 1 << 20


class ToolError(Exception):
    """A tool cannot be run: one sentence for the user."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a tool ended. `returncode` is None when it ran past its time and was killed."""

    returncode: int | None
    output: str  # stdout and stderr together; the middle is cut out beyond 1 MiB
    seconds: float

    @property
    def timed_out(self) -> bool:
        return self.returncode is None


def decoded(output: bytes) -> str:
    """Compiler output as text; bytes that are not UTF-8 stay visible as escapes."""
    return output.decode("utf-8", "backslashreplace")


async def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    niceness: int = 10,
) -> ToolResult:
    """Runs a program until it ends or `timeout` seconds are over; then its whole process group is
    killed, as it is when this coroutine is cancelled or this process dies.

    Raises ToolError where it cannot be started.
    """
    program = shutil.which(arguments[0])
    if program is None:
        raise ToolError(f"{arguments[0]} is not installed or not executable")
    reading, writing = os.pipe()
    started = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_GUARD),
            str(reading),
            str(niceness),
            program,
            *arguments[1:],
            cwd=cwd,
            env={**os.environ, **(environment or {}), "LC_ALL": "C.UTF-8"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(reading,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(writing)
        raise ToolError(f"{program} cannot be started: {error.strerror}") from error
    finally:
        os.close(reading)
    output = _Output()
    returncode: int | None = None
    try:
        async with asyncio.timeout(timeout):
            assert process.stdout is not None
            while block := await process.stdout.read(1 << 16):
                output.add(block)
            returncode = await process.wait()
    except TimeoutError:
        pass
    finally:
        os.close(writing)  # a guard that still waits now kills the tool's process group
        await asyncio.shield(process.wait())
    return ToolResult(returncode, output.text(), time.monotonic() - started)


class _Output:
    """Keeps the first and the last half of what a program prints."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = False

    def add(self, block: bytes) -> None:
        room = _OUTPUT_BYTES // 2 - len(self._head)
        self._head += block[:room]
        self._tail += block[room:] if room > 0 else block
        if len(self._tail) > _OUTPUT_BYTES:
            del self._tail[: -_OUTPUT_BYTES // 2]
            self._cut = True

    def text(self) -> str:
        middle = b"\n[...]\n" if self._cut else b""
        return decoded(bytes(self._head) + middle + bytes(self._tail))
