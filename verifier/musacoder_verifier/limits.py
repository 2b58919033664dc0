"""Limits: what a child of the runtime worker may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DeviceAccess:
    """What driving a device needs beyond a child's sandbox: `files` that it writes, and whether it
    opens a unix socket that only it serves (`local_server`). Without `private_processes` a child
    gets no pid namespace of its own."""

    files: tuple[str, ...] = ()
    local_server: bool = False
    private_processes: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds` is wall time for the whole life of the child. Sizes are in bytes, None: no limit.

    `memory_bytes` counts what the child and its descendants take beyond an interpreter that has
    imported torch (a fixed slack for threads and allocators is granted on top); `file_bytes`
    bounds each file that is written, memory files included. With `processes="none"` (for
    generated code) threads work, but starting a process or a program, opening any socket, and
    signalling anything else fail; with "some" (for the user's own code) up to `process_count`
    processes may run, and sockets are refused only without `network`.
    """

    seconds: float
    memory_bytes: int | None = None
    file_bytes: int | None = None
    processes: Literal["none", "some"] = "none"
    process_count: int = 64
    network: bool = False
