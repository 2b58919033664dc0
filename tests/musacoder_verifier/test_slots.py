"""Slots: who may be on a device at the same time, and who may be there alone."""

from __future__ import annotations

import asyncio

import pytest
from musacoder_verifier.slots import Company, NeverEmpty, Slots


async def test_one_that_is_alone_waits_for_the_others_and_keeps_new_ones_out() -> None:
    slots = Slots(1, None)
    order: list[str] = []
    inside, leave = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        async with slots.on_device("d", lambda: None):
            inside.set()
            await leave.wait()
            order.append("other leaves")

    async def late() -> None:
        async with slots.on_device("d", lambda: order.append("late waits")):
            order.append("late enters")

    async def lonely() -> None:
        async with slots.on_device("d", lambda: None) as visit:
            async with slots.alone(visit, lambda: order.append("lonely waits"), Company()):
                order.append("alone")
                newcomer = asyncio.create_task(late())
                while "late waits" not in order:
                    await asyncio.sleep(0)
                order.append("alone no more")
            await newcomer

    first = asyncio.create_task(other())
    await inside.wait()
    second = asyncio.create_task(lonely())
    for _ in range(20):
        await asyncio.sleep(0)
    assert order == ["lonely waits"]
    leave.set()
    await asyncio.gather(first, second)
    assert order[1:] == ["other leaves", "alone", "late waits", "alone no more", "late enters"]


async def test_two_that_both_want_to_be_alone_do_not_wait_for_each_other() -> None:
    slots = Slots(1, 2)
    alone = 0

    async def lonely() -> None:
        nonlocal alone
        async with (
            slots.on_device("d", lambda: None) as visit,
            slots.alone(visit, lambda: None, Company()),
        ):
            alone += 1
            assert alone == 1
            await asyncio.sleep(0)
            alone -= 1

    await asyncio.gather(lonely(), lonely())
    async with slots.on_device("d", lambda: None), slots.on_device("d", lambda: None):
        pass


async def test_devices_do_not_wait_for_each_other() -> None:
    slots = Slots(1, 1)
    waits: list[str] = []
    async with (
        slots.on_device("cuda:0", lambda: waits.append("0")),
        slots.on_device("cuda:1", lambda: waits.append("1")),
    ):
        pass
    assert waits == []


async def test_one_that_stays_alone_too_long_gets_company() -> None:
    slots = Slots(1, None, shut_seconds=0.01)
    company = Company()
    async with slots.on_device("d", lambda: None) as visit:
        async with slots.alone(visit, lambda: None, company):
            assert not company.joined
            # Inside at last, although the other has not left.
            async with slots.on_device("d", lambda: None):
                assert company.joined
        async with slots.on_device("d", lambda: None):
            pass


async def test_those_that_waited_for_one_come_in_before_the_next_is_alone() -> None:
    slots = Slots(1, None)
    order: list[str] = []
    waiting = asyncio.Event()

    async def lonely(name: str, wait: bool) -> None:
        async with (
            slots.on_device("d", lambda: None) as visit,
            slots.alone(visit, lambda: None, Company()),
        ):
            order.append(name)
            if wait:
                await waiting.wait()

    async def late() -> None:
        async with slots.on_device("d", waiting.set):
            order.append("late")

    first = asyncio.create_task(lonely("first", wait=True))
    second = asyncio.create_task(lonely("second", wait=False))
    while "first" not in order:
        await asyncio.sleep(0)
    await asyncio.gather(first, second, late())
    assert order == ["first", "late", "second"]


async def test_one_that_waits_to_be_alone_holds_no_slot() -> None:
    slots = Slots(1, 2, shut_seconds=0.01)
    async with (
        slots.on_device("d", lambda: None),
        slots.on_device("d", lambda: None) as visit,
    ):
        # The other never leaves: a third one is let in meanwhile, and the wait ends.
        third = asyncio.create_task(_visit(slots))
        with pytest.raises(NeverEmpty):
            async with slots.alone(visit, lambda: None, Company()):
                pass
        await third
    async with slots.on_device("d", lambda: None), slots.on_device("d", lambda: None):
        pass


async def _visit(slots: Slots) -> None:
    async with slots.on_device("d", lambda: None):
        pass


async def test_one_that_gives_up_at_the_door_is_not_counted() -> None:
    slots = Slots(1, None)
    async with (
        slots.on_device("d", lambda: None) as visit,
        slots.alone(visit, lambda: None, Company()),
    ):
        waits = asyncio.create_task(_visit(slots))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
    async with (
        slots.on_device("d", lambda: None) as visit,
        slots.alone(visit, lambda: None, Company()),
    ):
        pass
