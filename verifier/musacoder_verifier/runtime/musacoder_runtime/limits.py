"""Resource limits of a child, as the worker asks for them."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from typing import Any

# What threads and allocators reserve beside the tensors: one 8 MiB stack and one heap a thread.
_SLACK = 256 << 20
_SLACK_PER_CPU = 16 << 20


@dataclass(frozen=True)
class Limits:
    """Mirrors `musacoder_verifier.limits.Limits`; sizes in bytes, None: no limit."""

    seconds: float
    memory_bytes: int | None
    file_bytes: int | None
    processes: str  # "none" or "some"
    process_count: int
    network: bool

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Limits:
        return cls(**data)


def apply(limits: Limits) -> str:
    """Sets the kernel's limits for this process; returns "on" or "unavailable: why".

    Memory is bounded by RLIMIT_DATA, not RLIMIT_AS: it counts what is private and writable, so
    neither torch's mapped libraries nor reserved address space use it up, and passing it is an
    ordinary allocation error on the line that allocates. What RLIMIT_DATA does not see (shared
    memory, several processes) the supervisor watches.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limits.file_bytes is not None:
            _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
        if limits.memory_bytes is not None:
            _lower(resource.RLIMIT_DATA, _data_bytes() + limits.memory_bytes + memory_slack())
        if limits.processes == "some":
            # Binds no root, and without a user namespace counts the user's other processes too.
            _lower(resource.RLIMIT_NPROC, max(4096, limits.process_count))
    except (OSError, ValueError) as error:
        return f"unavailable: {error}"
    return "on"


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _data_bytes() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def prefer_for_oom_kill() -> None:
    """When the machine runs out of memory, the kernel takes this process before the editor."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def memory_slack() -> int:
    """Bytes granted beside `memory_bytes` for what threads and allocators reserve."""
    return _SLACK + _SLACK_PER_CPU * (os.cpu_count() or 1)
