"""Slots: how many verifications of one Verifier compile, and how many are on the device, at once.

A verification that compiles holds no device, and one that waits for the device holds no compiler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

# So long one verification that wants a device for itself may keep others from it. Most have ended
# by then; one that has not goes on in company.
SHUT_SECONDS = 45.0
# So many times it shuts the door and waits for those inside to leave.
_ROUNDS = 4


class _Device:
    """Who is on one device, and a door that one of them may shut for a while."""

    def __init__(self, places: int | None) -> None:
        self.places = asyncio.Semaphore(places) if places is not None else None
        self.sharing = 0
        self.shut = False
        self.turn = asyncio.Lock()  # of those that want to be alone
        self._waiting: list[asyncio.Future[None]] = []
        self._left = asyncio.Condition()

    @property
    def full(self) -> bool:
        return self.shut or (self.places is not None and self.places.locked())

    async def enter(self) -> None:
        if not self.shut:
            self.sharing += 1
            return
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                await self.leave()
            raise

    async def leave(self) -> None:
        self.sharing -= 1
        async with self._left:
            self._left.notify_all()

    def open(self) -> None:
        """All that wait are in from now on: who shuts the door next waits for them."""
        self.shut = False
        waiting, self._waiting = self._waiting, []
        for admitted in waiting:
            if not admitted.done():
                self.sharing += 1
                admitted.set_result(None)

    async def empty(self) -> None:
        async with self._left:
            await self._left.wait_for(lambda: self.sharing == 0)


class NeverEmpty(Exception):
    """Others were on the device however often it was waited for them to leave."""


class Visit:
    """A verification's stay on a device."""

    def __init__(self, device: _Device) -> None:
        self.device = device
        self._placed = False
        self._inside = False

    async def begin(self) -> None:
        if self.device.places is not None:
            await self.device.places.acquire()
        self._placed = True
        await self.device.enter()
        self._inside = True

    async def end(self) -> None:
        if self._placed and self.device.places is not None:
            self.device.places.release()
        self._placed = False
        if self._inside:
            self._inside = False
            await self.device.leave()


class Company:
    """`joined`: others are on the device too, or were: alone it took too long."""

    def __init__(self) -> None:
        self.joined = False


class Slots:
    """`device` is the number for each device by its label; None: no limit, the measurement lock
    alone keeps timings apart."""

    def __init__(
        self, compilers: int, device: int | None, shut_seconds: float = SHUT_SECONDS
    ) -> None:
        if compilers < 1 or (device is not None and device < 1):
            raise ValueError("a Verifier needs at least one slot of each kind")
        self._compilers = asyncio.Semaphore(compilers)
        self._each = device
        self._shut_seconds = shut_seconds
        self._devices: dict[str, _Device] = {}

    def _device(self, label: str) -> _Device:
        return self._devices.setdefault(label, _Device(self._each))

    @asynccontextmanager
    async def compiling(self) -> AsyncIterator[None]:
        async with self._compilers:
            yield

    @asynccontextmanager
    async def on_device(self, label: str, waiting: Callable[[], None]) -> AsyncIterator[Visit]:
        """`waiting` is called once if this device has no free slot, or somebody is alone there."""
        device = self._device(label)
        if device.full:
            waiting()
        visit = Visit(device)
        try:
            await visit.begin()
            yield visit
        finally:
            await visit.end()

    @asynccontextmanager
    async def alone(
        self, visit: Visit, waiting: Callable[[], None], company: Company
    ) -> AsyncIterator[None]:
        """For a visit: the others on its device have ended, and none comes until this block ends
        or the door has been shut for `SHUT_SECONDS`, which `company` tells. Afterwards the visit
        goes on as before.

        One that waits here counts as gone and gives its slot back, so that several may want it at
        the same time and others go on meanwhile; `waiting` is called if it has to wait. Raises
        NeverEmpty.
        """
        device = visit.device
        await visit.end()
        if device.turn.locked() or device.sharing:
            waiting()
        async with device.turn:
            opening = await self._shut_when_empty(device, company)
            try:
                yield
            finally:
                opening.cancel()
                device.open()
        await visit.begin()

    async def _shut_when_empty(self, device: _Device, company: Company) -> asyncio.TimerHandle:
        """Returns what opens the door again. Raises NeverEmpty."""

        def expire() -> None:
            company.joined = True
            device.open()

        loop = asyncio.get_running_loop()
        for _ in range(_ROUNDS):
            device.shut = True
            ends = loop.time() + self._shut_seconds
            try:
                async with asyncio.timeout_at(ends):
                    await device.empty()
            except TimeoutError:
                device.open()
            except BaseException:
                device.open()
                raise
            else:
                return loop.call_at(ends, expire)
        raise NeverEmpty
