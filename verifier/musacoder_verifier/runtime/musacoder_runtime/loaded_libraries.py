"""Which shared libraries this process has mapped: what a Candidate brings along shows by itself.

A library that a Candidate opens by name at run time stands in no symbol table of its extension.
"""

from __future__ import annotations

import os


def mapped() -> frozenset[str]:
    """Paths of all mapped files that are shared libraries; empty where /proc cannot be read."""
    try:
        with open("/proc/self/maps", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return frozenset()
    # address permissions offset device inode path; many lines speak of one file.
    paths = {line[line.index(b"/") :] for line in lines if b".so" in line and b"/" in line}
    return frozenset(os.fsdecode(path) for path in paths)


class LibraryWatch:
    """What has been mapped since it was made."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = mapped()

    def added(self) -> list[str]:
        """Paths of libraries that were not mapped then, sorted."""
        return sorted(mapped() - self._before)
