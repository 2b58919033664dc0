"""Notices that the process that started us is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

# How often a process is looked for where the kernel cannot tell, in seconds.
_POLL = 5.0


class ParentWatch:
    """Calls `on_gone` once, on the loop. A process id that does not exist here from the start
    belongs to another machine or container and is not watched."""

    def __init__(self, process_id: int, on_gone: Callable[[], None]) -> None:
        self._process_id = process_id
        self._on_gone = on_gone
        self._fd: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if not _exists(self._process_id):
            return
        loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(self._process_id)
        except (OSError, AttributeError):
            self._timer = loop.call_later(_POLL, self._poll)
            return
        loop.add_reader(self._fd, self._gone)

    def close(self) -> None:
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _poll(self) -> None:
        if _exists(self._process_id):
            self._timer = asyncio.get_running_loop().call_later(_POLL, self._poll)
        else:
            self._gone()

    def _gone(self) -> None:
        self.close()
        self._on_gone()


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError, OSError):
        return True
    return True
