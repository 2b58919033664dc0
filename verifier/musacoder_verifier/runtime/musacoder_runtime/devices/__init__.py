"""One module per kind of device: the counterpart, in the user's interpreter, of a Backend."""

from __future__ import annotations

import importlib
from typing import Any, ContextManager, Protocol


class Device(Protocol):
    """What measuring and checking needs from a device. One instance per child."""

    torch_device: str

    def configure(self, threads: int) -> None:
        """Pin what must be equal on both sides; called once, before any tensor operation."""

    def parallel(self, on: bool) -> None:
        """All of the configured threads, for what is measured and for large tensors, or one:
        many short parallel loops on a busy machine mostly wait for each other."""

    def synchronize(self) -> None:
        """Return when all work given to the device is done."""

    def poison(self, on: bool) -> bool:
        """From now on, fill memory that is handed out with garbage; False: cannot."""

    def flush(self) -> None:
        """Make the caches cold."""

    def warm_memory(self) -> None:
        """Have the memory at hand that the next sample will take, so that asking the system for it
        is not timed."""

    def watching_memory(self) -> ContextManager[None]:
        """Around a sample: remember how much memory it asked the system for."""

    def bandwidth(self) -> float:
        """Bytes a second that this device copies, read and written bytes both counted."""

    def background_work(self) -> int:
        """Nanoseconds that other threads of this process have computed so far."""


def get(name: str) -> Device:
    """The device of a Backend's runtime name; ImportError where there is none."""
    module: Any = importlib.import_module(f"musacoder_runtime.devices.{name}")
    device: Device = module.create()
    return device
