"""One module per kind of device: the counterpart, in the user's interpreter, of a Backend."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, List, Protocol, Tuple


@dataclass(frozen=True)
class Times:
    """Nanoseconds of all calls of one sample together."""

    device: float  # on the device's own clock: the figure that counts
    host: float  # until the last call was handed over, waiting for the device left out
    span: float  # from the first call to the end of all its work, on the host's clock


class Device(Protocol):
    """What measuring and checking needs from a device. One instance per child."""

    torch_device: str
    own_clock: bool  # `Times.device` is of another clock than the host's, which must confirm it
    sample_ns: float  # so long should the calls of one sample take together

    def configure(self, threads: int) -> None:
        """Pin what must be equal on both sides; called once, before any tensor operation."""

    def parallel(self, on: bool) -> None:
        """All of the configured threads, for what is measured and for large tensors, or one:
        many short parallel loops on a busy machine mostly wait for each other."""

    def making(self) -> ContextManager[Any]:
        """Around the user's code that makes inputs: tensors come into being on the device, where
        that is faster than making them elsewhere."""

    def synchronize(self) -> None:
        """Return when all work given to the device is done; raises what went wrong there."""

    def poison(self, on: bool) -> bool:
        """Fill memory that is handed out from now on with garbage, or what is free now; False:
        cannot."""

    def flush(self) -> None:
        """Make the caches cold."""

    def warm_memory(self) -> None:
        """Have the memory at hand that the next sample will take, so that asking the system for it
        is not timed."""

    def watching_memory(self) -> ContextManager[None]:
        """Around a sample: remember how much memory it asked the system for."""

    def release(self) -> None:
        """Give back memory that is held but not used."""

    def tidy(self) -> None:
        """`release` where so much is held that the other side's process may lack it."""

    def crowded(self, size: int) -> bool:
        """Do tensors of `size` bytes take so large a share of the device's memory that nothing may
        be kept there that is not needed at once?"""

    def measure(self, call: Callable[[int], None], calls: int, hold_ns: float) -> Times:
        """Time `call(0)`, `call(1)`, ... after `flush`. A device that works through a queue is held
        up for `hold_ns` before each call, so that it never waits for the host."""

    def span(self, call: Callable[[int], None], calls: int) -> Times:
        """Time the same calls back to back by the host's clock alone, until all work is done."""

    def bandwidth(self) -> float:
        """Bytes a second that this device copies, read and written bytes both counted."""

    def background_work(self) -> int:
        """Nanoseconds that other threads of this process have computed so far."""

    def changes(self) -> List[Tuple[str, str]]:
        """(rule, what) for settings of the device that were turned since `configure`."""

    def out_of_memory(self, error: BaseException) -> bool:
        """Does this exception say that the device has no memory left?"""

    def lost(self) -> bool:
        """After an exception: nothing works any more, and this process must end."""


def get(name: str) -> Device:
    """The device of a Backend's runtime name; ImportError where there is none."""
    module: Any = importlib.import_module(f"musacoder_runtime.devices.{name}")
    device: Device = module.create()
    return device
