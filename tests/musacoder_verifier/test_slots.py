"""Slots: who may be on a device at the same time, and who may be there alone."""

from __future__ import annotations

import asyncio

from musacoder_verifier.slots import Slots


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
        async with slots.on_device("d", lambda: None):
            async with slots.alone("d"):
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
    assert order == []
    leave.set()
    await asyncio.gather(first, second)
    assert order == ["other leaves", "alone", "late waits", "alone no more", "late enters"]


async def test_two_that_both_want_to_be_alone_do_not_wait_for_each_other() -> None:
    slots = Slots(1, 2)
    alone = 0

    async def lonely() -> None:
        nonlocal alone
        async with slots.on_device("d", lambda: None), slots.alone("d"):
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
