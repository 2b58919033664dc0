"""The CPU as a Backend."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CpuBackend:
    name: str = "cpu"
    runtime_device: str = "cpu"
    host_flags: tuple[str, ...] = ("-O3", "-march=native", "-fopenmp")
    device_flags: tuple[str, ...] = ()

    def device_name(self) -> str:
        return _name()

    def lock_name(self) -> str:
        return "cpu"


@cache
def _name() -> str:
    model = platform.processor() or platform.machine()
    try:
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{model}, {usable_cores()} cores"


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
