"""Where generated sources and state are kept, and how they are written without losing anything."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

FOLDER = ".musacoder"
_APP = "musacoder"


class CannotWrite(Exception):
    """One sentence: what could not be written, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for generated sources; `note` says why it is not the workspace's own."""

    folder: Path
    note: str | None = None


def workspace_key(folder: Path | None) -> str:
    """A name for a workspace that is stable across spellings of its path."""
    text = "no folder" if folder is None else str(folder.resolve())
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def state_file(folder: Path | None) -> Path:
    """The store of one workspace. It never lies in the workspace: a cloned repository must not
    be able to ship a speed-up. The number is the schema's."""
    root = platformdirs.user_state_path(_APP)
    return root / "workspaces" / workspace_key(folder) / "state-1.db"


def cache_folder() -> Path:
    return platformdirs.user_cache_path(_APP)


def generated_place(folder: Path | None) -> Place:
    """`.musacoder/` of the workspace folder, else a folder of the user's cache with a note.

    Raises CannotWrite when neither can be made.
    """
    if folder is None or folder == Path(folder.anchor):
        return _cache_place(folder, "the file is in no workspace folder")
    target = folder / FOLDER
    if target.is_symlink():
        return _cache_place(folder, f"{target} is a symbolic link")
    try:
        target.mkdir(exist_ok=True)
        ignore = target / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CannotWrite(_sentence(problem, target)) from problem
        return _cache_place(folder, f"{folder} cannot be written ({_reason(problem)})")
    return Place(target)


def _cache_place(folder: Path | None, why: str) -> Place:
    target = cache_folder() / "generated" / workspace_key(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise CannotWrite(_sentence(problem, target)) from problem
    return Place(target, f"Generated files go to {target}, because {why}.")


def write_generated(place: Place, source_file: str | None, name: str, text: str) -> Path:
    """Writes one generated module and returns its path. Never overwrites other content: a person
    may have edited an earlier file, so names carry the content's hash.

    Raises CannotWrite.
    """
    stem = _slug(Path(source_file).stem) if source_file else "untitled"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    data = text.encode("utf-8", "surrogatepass")
    parent = place.folder / stem
    for attempt in range(100):
        suffix = f"-{attempt + 1}" if attempt else ""
        path = parent / f"{_slug(name)}_{digest}{suffix}.py"
        try:
            if parent.is_symlink() or path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            parent.mkdir(exist_ok=True)
            if path.exists():
                if path.read_bytes() == data:
                    return path
                continue
            write_atomically(path, data)
        except OSError as problem:
            raise CannotWrite(_sentence(problem, path)) from problem
        return path
    raise CannotWrite(f"{parent} holds too many edited versions of {name}; delete some of them.")


def write_atomically(path: Path, data: bytes) -> None:
    """The file is there whole or not at all; nothing half-written stays behind. Raises OSError."""
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _slug(text: str) -> str:
    """A part of a file name, and of a Python module's name."""
    return re.sub(r"\W+", "_", text).strip("_")[:80] or "kernel"


def _reason(problem: OSError) -> str:
    return (os.strerror(problem.errno) if problem.errno else str(problem)).lower()


def _sentence(problem: OSError, path: Path) -> str:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full: {path} could not be written; free some space and try again."
    return f"{path} could not be written: {_reason(problem)}."
