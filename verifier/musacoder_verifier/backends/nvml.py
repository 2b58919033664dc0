"""NVIDIA's management library through ctypes: which GPUs there are, and how they are doing.

It makes no CUDA context, starts no thread and takes no memory of a GPU, so that the server may use
it. Names and numbers are those of nvml.h. What a driver does not answer is None, never a guess.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

_LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
)
_TEXT = 96
_CLOCK_SM = 1
_NO_SPACE = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_MOST_PROCESSES = 256

# nvmlClocksEventReasons: those that mean that the GPU runs slower than it was asked to.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class NvmlError(Exception):
    """The library is missing or a call failed: one sentence."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """`capability` is (major, minor); `memory_bytes` the card's whole memory."""

    index: int  # in PCI order, as nvidia-smi numbers them
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Readings:
    """One look at a GPU. `load` is its utilisation in percent over the driver's last period;
    `processes` maps process ids, as the driver numbers them, to bytes in use."""

    sm_mhz: int | None = None
    most_sm_mhz: int | None = None
    throttles: tuple[str, ...] | None = None
    load: int | None = None
    processes: dict[int, int] | None = None
    temperature: int | None = None


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """`library` is libnvidia-ml, initialised."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def _call(self, name: str, *arguments: Any) -> int:
        """The result of a function of the library; -1 where this driver lacks it."""
        function = getattr(self._library, name, None)
        return -1 if function is None else int(function(*arguments))

    def _number(self, name: str, handle: Any, *arguments: Any, kind: Any = ctypes.c_uint) -> Any:
        value = kind()
        failed = self._call(name, handle, *arguments, ctypes.byref(value))
        return None if failed else int(value.value)

    def _text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(_TEXT)
        if self._call(name, *arguments, buffer, ctypes.c_uint(_TEXT)):
            return ""
        return buffer.value.decode("utf-8", "replace")

    def _handle(self, uuid: str) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        found = self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return None if found else handle

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs that the driver shows. Raises NvmlError where it does not count them."""
        count = ctypes.c_uint()
        failed = self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if failed:
            raise NvmlError(f"the NVIDIA driver does not list its GPUs (NVML error {failed})")
        driver = self._text("nvmlSystemGetDriverVersion")
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)):
                continue  # one that this user may not see
            found.append(self._gpu(index, handle, driver))
        return tuple(found)

    def _gpu(self, index: int, handle: ctypes.c_void_p, driver: str) -> Gpu:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call(
            "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor)
        )
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return Gpu(
            index=index,
            uuid=self._text("nvmlDeviceGetUUID", handle),
            name=self._text("nvmlDeviceGetName", handle) or "NVIDIA GPU",
            capability=(major.value, minor.value),
            memory_bytes=int(memory.total),
            driver=driver,
        )

    def memory_in_use(self, uuid: str) -> float | None:
        """The share of the GPU's memory that is taken; None where it cannot be asked."""
        handle, memory = self._handle(uuid), _Memory()
        if handle is None or self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)):
            return None
        return memory.used / memory.total if memory.total else None

    def read(self, uuid: str) -> Readings | None:
        """How the GPU is doing; None where it cannot be asked."""
        handle = self._handle(uuid)
        if handle is None:
            return None
        reasons = self._number(
            "nvmlDeviceGetCurrentClocksEventReasons", handle, kind=ctypes.c_ulonglong
        )
        if reasons is None:  # its name until driver 535
            reasons = self._number(
                "nvmlDeviceGetCurrentClocksThrottleReasons", handle, kind=ctypes.c_ulonglong
            )
        load = _Utilisation()
        unloaded = self._call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(load))
        return Readings(
            sm_mhz=self._number("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
            most_sm_mhz=self._number("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM),
            throttles=None if reasons is None else throttles(reasons),
            load=None if unloaded else int(load.gpu),
            processes=self._processes(handle),
            temperature=self._number("nvmlDeviceGetTemperature", handle, 0),
        )

    def _processes(self, handle: ctypes.c_void_p) -> dict[int, int] | None:
        room = (_Process * _MOST_PROCESSES)()
        count = ctypes.c_uint(_MOST_PROCESSES)
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if self._call(name, handle, ctypes.byref(count), room) not in (0, _NO_SPACE):
            return None
        return {int(each.pid): int(each.used) for each in room[: min(count.value, len(room))]}


def throttles(reasons: int) -> tuple[str, ...]:
    """What slows the GPU down, from NVML's bits."""
    return tuple(name for bit, name in _THROTTLES.items() if reasons & bit)


@cache
def open_library() -> Nvml:
    """Raises NvmlError: there is no NVIDIA driver here, or it does not work."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        failed = int(library.nvmlInit_v2())
        if failed:
            raise NvmlError(f"the NVIDIA driver does not answer (NVML error {failed})")
        return Nvml(library)
    raise NvmlError("no NVIDIA driver was found (libnvidia-ml.so.1 is missing)")


def visible(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """`gpus` as CUDA numbers them under CUDA_VISIBLE_DEVICES = `setting`: indices or beginnings of
    UUIDs, in that order, up to the first one that does not exist."""
    if setting is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for word in (part.strip() for part in setting.split(",")):
        if word.isdigit():
            match = [gpu for gpu in gpus if gpu.index == int(word)]
        else:
            match = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
        if len(match) != 1:
            break
        chosen.append(match[0])
    return tuple(chosen)


def visible_here() -> tuple[Gpu, ...]:
    """The GPUs that a program started from this process may use. Raises NvmlError."""
    return visible(open_library().gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
