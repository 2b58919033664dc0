"""The content-addressed cache of compiled things.

An entry is a folder, filled elsewhere on the same file system and renamed into place whole: a
reader never sees half of one, and of two writers with the same key the first wins. What a crash
leaves behind is a temporary folder, swept when it is old. The cache is bounded; the entries that
were used longest ago go first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_MAX_BYTES = 2 << 30
_STALE_SECONDS = 6 * 3600
_SWEEP_SECONDS = 600.0


def content_key(*parts: Any) -> str:
    """A key over JSON-able parts: equal parts, equal key."""
    text = json.dumps(parts, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def tree_digest(*roots: Path) -> str:
    """A digest of the names and contents of all files under some folders."""
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(root)).encode("utf-8", "surrogateescape"))
                digest.update(b"\0")
                digest.update(path.read_bytes())
                digest.update(b"\0")
    return digest.hexdigest()


class ArtefactCache:
    """Entries below one folder. All methods touch the disk: call them off the event loop."""

    def __init__(self, folder: Path, max_bytes: int = _MAX_BYTES) -> None:
        self.folder = folder
        self._max_bytes = max_bytes

    def find(self, key: str) -> Path | None:
        """The entry's folder, marked as used now; None where there is none."""
        entry = self.folder / key[:2] / key
        try:
            os.utime(entry)
        except OSError:
            return None
        return entry

    @contextmanager
    def building(self) -> Iterator[Path]:
        """A temporary folder for `publish`; what is left in it is removed at the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix="tmp-", dir=self.folder))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def publish(self, key: str, filled: Path) -> Path:
        """Renames a folder made by `building` to the entry `key`, and returns the entry: an
        earlier one of the same key stays. Raises OSError, for instance on a full disk."""
        entry = self.folder / key[:2] / key
        entry.parent.mkdir(exist_ok=True)
        try:
            filled.rename(entry)
        except OSError:
            if not entry.is_dir():
                raise
        self._sweep()
        return entry

    def _sweep(self) -> None:
        """Drops old entries and what crashes left, at most every ten minutes."""
        stamp = self.folder / "swept"
        now = time.time()
        with suppress(OSError):
            if now - stamp.stat().st_mtime < _SWEEP_SECONDS:
                return
        with suppress(OSError):
            stamp.touch()
            for leftover in self.folder.glob("tmp-*"):
                with suppress(OSError):
                    if now - leftover.stat().st_mtime > _STALE_SECONDS:
                        shutil.rmtree(leftover, ignore_errors=True)
            self.shrink()

    def shrink(self) -> None:
        """Removes the least recently used entries until the cache is within its bound."""
        sized = []
        for entry in self.folder.glob("??/*"):
            with suppress(OSError):
                size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
                sized.append((entry.stat().st_mtime, size, entry))
        total = sum(size for _, size, _ in sized)
        for _, size, entry in sorted(sized, key=lambda item: item[:2]):
            if total <= self._max_bytes:
                break
            # Renamed first, so that no reader finds an entry that is half gone.
            doomed = self.folder / f"tmp-{entry.name}"
            with suppress(OSError):
                entry.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
            total -= size
