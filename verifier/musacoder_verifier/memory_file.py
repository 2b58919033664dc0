"""Memory files: how large tensors cross between children without a copy through the worker."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType


class MemoryFile:
    """An anonymous file of `size` bytes in memory, passed to children by `fd`.

    Its size is sealed, so that no child can shrink it under the feet of another that has it
    mapped. Raises OSError where the machine has no memory left for it.
    """

    def __init__(self, size: int, name: str = "musacoder") -> None:
        self.size = size
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        except OSError:
            os.close(self.fd)
            raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
