"""Slots: how many verifications of one Verifier compile, and how many are on the device, at once.

A verification that compiles holds no device, and one that waits for the device holds no compiler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Slots:
    """`device` None: no limit, the measurement lock alone keeps timings apart."""

    def __init__(self, compilers: int, device: int | None) -> None:
        if compilers < 1 or (device is not None and device < 1):
            raise ValueError("a Verifier needs at least one slot of each kind")
        self._compilers = asyncio.Semaphore(compilers)
        self._device = asyncio.Semaphore(device) if device is not None else None

    @asynccontextmanager
    async def compiling(self) -> AsyncIterator[None]:
        async with self._compilers:
            yield

    @asynccontextmanager
    async def on_device(self, waiting: Callable[[], None]) -> AsyncIterator[None]:
        """`waiting` is called once if no slot is free."""
        if self._device is None:
            yield
            return
        if self._device.locked():
            waiting()
        async with self._device:
            yield
