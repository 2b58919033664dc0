"""The CPU as a Backend."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from musacoder_verifier.backends.base import Conditions
from musacoder_verifier.limits import DeviceAccess
from musacoder_verifier.toolchain import Toolkit
from musacoder_verifier.worker import WorkerInfo


@dataclass(frozen=True, slots=True)
class CpuBackend:
    name: str = "cpu"
    label: str = "cpu"
    runtime_device: str = "cpu"
    host_flags: tuple[str, ...] = ("-O3", "-march=native", "-fopenmp")
    device_flags: tuple[str, ...] = ()
    narrow: float = 0.02
    compile_modes: tuple[str, ...] = ("default", "max-autotune-no-cudagraphs")

    def missing(self) -> str | None:
        return None

    def unfit(self, info: WorkerInfo) -> str | None:
        return None

    def toolkit(self, site_folders: Sequence[str]) -> Toolkit | None:
        return None

    def no_toolkit(self) -> str:
        return "the backend cpu compiles no device sources"

    def device_name(self) -> str:
        return _name()

    def versions(self) -> Mapping[str, str]:
        return {}

    def lock_name(self) -> str:
        return "cpu"

    def environment(self) -> Mapping[str, str]:
        return {}

    def access(self) -> DeviceAccess:
        return DeviceAccess()

    def memory_in_use(self) -> float | None:
        return None

    def watch(self, own: Sequence[int]) -> Unwatched:
        return Unwatched()


class Unwatched:
    """A CPU's clock and its other load show in the spread of samples, and are not looked at."""

    def look(self) -> None:
        pass

    def conditions(self) -> Conditions:
        return Conditions()


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
