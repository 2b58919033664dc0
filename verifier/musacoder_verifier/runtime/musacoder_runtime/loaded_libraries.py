"""Which shared libraries this process has mapped: what a Candidate brings along shows by itself.

A library that a Candidate opens by name at run time stands in no symbol table of its extension.
"""

from __future__ import annotations

import contextlib
import os
from typing import Dict, Iterable, List, Set, Tuple

_DELETED = " (deleted)"


File = Tuple[int, str]  # inode and name: what stays when a cache moves a file away to remove it


def mapped() -> Dict[str, File]:
    """Path -> file of all mapped shared libraries; empty where /proc cannot be read."""
    try:
        with open("/proc/self/maps", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    found: Dict[str, File] = {}
    for line in lines:  # address permissions offset device inode path; many speak of one file
        if b".so" not in line or b"/" not in line:
            continue
        path = os.fsdecode(line[line.index(b"/") :])
        name = os.path.basename(path[: -len(_DELETED)] if path.endswith(_DELETED) else path)
        found[path] = (int(line.split(None, 5)[4]), name)
    return found


class LibraryWatch:
    """What has been mapped since it was made."""

    __slots__ = ("_before", "_own")

    def __init__(self) -> None:
        self._before = frozenset(mapped())
        self._own: Set[File] = set()

    def expect(self, paths: Iterable[str]) -> None:
        """These are about to be loaded by us."""
        for path in paths:
            with contextlib.suppress(OSError):
                self._own.add((os.stat(path).st_ino, os.path.basename(path)))

    def added(self) -> List[str]:
        """Paths of libraries that were neither mapped then nor expected, sorted."""
        return sorted(
            path
            for path, file in mapped().items()
            if path not in self._before and file not in self._own
        )
