"""One measurement at a time per device, across processes and users of this machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_POLL_SECONDS = 0.05


def default_folder() -> Path:
    """Shared by all users of the machine: figures of two at once would be worth nothing."""
    return Path(tempfile.gettempdir()) / "musacoder-locks"


@asynccontextmanager
async def hold(
    folder: Path, name: str, waiting: Callable[[], None], timeout: float
) -> AsyncIterator[bool]:
    """Hold the lock `name`. `waiting` is called once if somebody else has it. Yields False where
    it was not to be had within `timeout` seconds, or the folder cannot be used.

    The operating system frees the lock when its holder dies.
    """
    lock = FileLock(folder / f"{name}.lock", mode=0o666)
    taken = await _take(lock, folder, waiting, timeout)
    try:
        yield taken
    finally:
        if taken:
            lock.release()


async def _take(lock: FileLock, folder: Path, waiting: Callable[[], None], timeout: float) -> bool:
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout
    told = False
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                os.chmod(folder, 0o1777)  # noqa: PTH101
        while True:
            try:
                lock.acquire(timeout=0)
                return True
            except Timeout:
                if not told:
                    waiting()
                    told = True
            if loop.time() > ends:
                return False
            await asyncio.sleep(_POLL_SECONDS)
    except OSError:
        return False
