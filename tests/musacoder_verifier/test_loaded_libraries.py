"""Libraries that a process maps: told by what they are, not by where a cache has moved them."""

from __future__ import annotations

import _bisect
import ctypes
import shutil
import uuid
from pathlib import Path

import pytest
from musacoder_runtime.loaded_libraries import LibraryWatch


def _library(folder: Path) -> Path:
    """A shared library that nobody has loaded yet."""
    if not hasattr(_bisect, "__file__"):
        pytest.skip("this interpreter has no shared library of its own to copy")
    folder.mkdir()
    return Path(shutil.copy(_bisect.__file__, folder / f"library{uuid.uuid4().hex}.so"))


def test_a_library_is_told_unless_it_is_expected(tmp_path: Path) -> None:
    watch = LibraryWatch()
    ours, theirs = _library(tmp_path / "ours"), _library(tmp_path / "theirs")
    watch.expect([str(ours), str(tmp_path / "missing.so")])
    ctypes.CDLL(str(ours))
    ctypes.CDLL(str(theirs))
    assert watch.added() == [str(theirs)]


def test_one_that_is_moved_and_removed_is_still_the_same(tmp_path: Path) -> None:
    watch = LibraryWatch()
    ours = _library(tmp_path / "entry")
    watch.expect([str(ours)])
    ctypes.CDLL(str(ours))
    ours.parent.rename(tmp_path / "tmp-entry")
    assert watch.added() == []
    shutil.rmtree(tmp_path / "tmp-entry")
    assert watch.added() == []
