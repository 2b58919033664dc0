"""Slots: how many verifications of one Verifier compile, and how many are on the device, at once.

A verification that compiles holds no device, and one that waits for the device holds no compiler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext


class _Device:
    """Who is on one device."""

    def __init__(self, places: int | None) -> None:
        self.places = asyncio.Semaphore(places) if places is not None else None
        self.sharing = 0
        self.changed = asyncio.Condition()
        self.alone = asyncio.Lock()

    @property
    def full(self) -> bool:
        taken = self.places is not None and self.places.locked()
        return taken or self.alone.locked()

    async def enter(self) -> None:
        async with self.alone:
            self.sharing += 1

    async def leave(self) -> None:
        async with self.changed:
            self.sharing -= 1
            self.changed.notify_all()


class Slots:
    """`device` is the number for each device by its label; None: no limit, the measurement lock
    alone keeps timings apart."""

    def __init__(self, compilers: int, device: int | None) -> None:
        if compilers < 1 or (device is not None and device < 1):
            raise ValueError("a Verifier needs at least one slot of each kind")
        self._compilers = asyncio.Semaphore(compilers)
        self._each = device
        self._devices: dict[str, _Device] = {}

    def _device(self, label: str) -> _Device:
        return self._devices.setdefault(label, _Device(self._each))

    @asynccontextmanager
    async def compiling(self) -> AsyncIterator[None]:
        async with self._compilers:
            yield

    @asynccontextmanager
    async def on_device(self, label: str, waiting: Callable[[], None]) -> AsyncIterator[None]:
        """`waiting` is called once if this device has no free slot, or somebody is alone there."""
        device = self._device(label)
        if device.full:
            waiting()
        async with device.places or nullcontext():
            await device.enter()
            try:
                yield
            finally:
                await device.leave()

    @asynccontextmanager
    async def alone(self, label: str) -> AsyncIterator[None]:
        """For a verification that is on this device: the others there have ended, and none comes
        until this one leaves.

        One that waits here counts as gone, so that several may want it at the same time.
        """
        device = self._device(label)
        await device.leave()
        try:
            async with device.alone:
                async with device.changed:
                    await device.changed.wait_for(lambda: device.sharing == 0)
                yield
        finally:
            device.sharing += 1
