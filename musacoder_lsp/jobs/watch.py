"""Notices when another program changes a generated file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from watchdog.events import (
    FileClosedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

logger = logging.getLogger(__name__)

# Programs write a file in several steps; we look once it is quiet, in seconds.
_QUIET = 0.2


class GeneratedWatch(FileSystemEventHandler):
    """Watches folders of generated sources; `on_change` is called on the loop with a path.

    Its thread starts with the first folder. A folder that cannot be watched (no inotify instance
    left, say) is only not watched: saving in the editor still works.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[str], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._observer: BaseObserver | None = None
        self._folders: set[Path] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, folder: Path) -> None:
        if folder in self._folders:
            return
        self._folders.add(folder)
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.daemon = True
                self._observer.start()
            self._observer.schedule(self, str(folder), recursive=True)
        except (OSError, RuntimeError) as problem:
            logger.warning("%s is not watched: %s", folder, problem)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    def on_any_event(self, event: FileSystemEvent) -> None:
        """On watchdog's thread. A file counts once it was closed, or moved into place."""
        if isinstance(event, FileMovedEvent):
            path = event.dest_path
        elif isinstance(event, FileClosedEvent):
            path = event.src_path
        else:
            return
        if str(path).endswith(".py"):
            self._loop.call_soon_threadsafe(self._touched, str(path))

    def _touched(self, path: str) -> None:
        old = self._timers.pop(path, None)
        if old is not None:
            old.cancel()
        self._timers[path] = self._loop.call_later(_QUIET, self._quiet, path)

    def _quiet(self, path: str) -> None:
        del self._timers[path]
        self._on_change(path)
