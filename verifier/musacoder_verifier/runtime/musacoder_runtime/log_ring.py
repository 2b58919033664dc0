"""The last bytes that a child printed, in shared memory that the worker reads at any time.

Layout: 8 bytes little-endian count of all bytes ever printed, then the ring itself.
"""

from __future__ import annotations

import contextlib
import mmap
import os

HEADER = 8


class LogRing:
    """The writing end; `fd` is a memory file made (and sized) by the worker."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self._size = len(self._memory) - HEADER
        self._total = 0

    def write(self, data: bytes) -> None:
        self._total += len(data)
        data = data[-self._size :]
        start = HEADER + (self._total - len(data)) % self._size
        first = min(len(data), HEADER + self._size - start)
        self._memory[start : start + first] = data[:first]
        self._memory[HEADER : HEADER + len(data) - first] = data[first:]
        self._memory[:HEADER] = self._total.to_bytes(HEADER, "little")

    def drain(self, source: int, at_most: int) -> bool:
        """Moves what the non-blocking pipe `source` holds, up to about `at_most` bytes. False at
        its end."""
        moved = 0
        with contextlib.suppress(BlockingIOError):
            while moved < at_most:
                data = os.read(source, 1 << 16)
                if not data:
                    return False
                self.write(data)
                moved += len(data)
        return True
