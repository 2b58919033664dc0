"""Landlock: a child may read the file system, and write only where it was told to.

Constants from Linux's include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Sequence

from musacoder_runtime import linux

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_NET = 0b11  # bind and connect of TCP, since version 4
_SCOPES = 0b11  # abstract unix sockets and signals, since version 6


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    ]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The kernel's landlock version; raises OSError where there is none."""
    return linux.syscall("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_VERSION)


def restrict(writable: Sequence[str], *, network: bool) -> str:
    """Restricts this process and what it starts; returns "on" or "unavailable: why".

    `writable` names folders and files; what does not exist is passed over. Needs
    `set_no_new_privileges` first.
    """
    try:
        abi = version()
    except OSError as error:
        return f"unavailable: {error.strerror}"
    files = _READ | _WRITE_FILE | _REMOVE_AND_MAKE
    files |= _REFER if abi >= 2 else 0
    files |= _TRUNCATE if abi >= 3 else 0
    ruleset = _Ruleset(files, _NET if abi >= 4 and not network else 0, _SCOPES if abi >= 6 else 0)
    size = 8 * (3 if abi >= 6 else 2 if abi >= 4 else 1)
    try:
        handle = linux.syscall(
            "landlock", _CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0
        )
        try:
            _allow(handle, "/", _READ)
            for path in writable:
                _allow(handle, path, files)
            linux.syscall("landlock", _RESTRICT_SELF, handle, 0)
        finally:
            os.close(handle)
    except OSError as error:
        return f"unavailable: {error.strerror}"
    return "on"


def _allow(handle: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _ON_FILES
        rule = _Beneath(rights, parent)
        linux.syscall("landlock", _ADD_RULE, handle, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(parent)
