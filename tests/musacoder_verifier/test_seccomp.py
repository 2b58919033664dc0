"""The seccomp programs, run by a small interpreter of classic BPF."""

from __future__ import annotations

import errno
import struct

import pytest
from musacoder_runtime import seccomp

ALLOW = 0x7FFF0000
KILL = 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def run(
    rows: list[seccomp.Row], architecture: int, number: int, first: int = 0, second: int = 0
) -> int:
    """What the kernel would answer, by the rules of Documentation/networking/filter.rst."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, first, second, 0, 0, 0, 0)
    at = value = 0
    while True:
        code, jump_true, jump_false, operand = rows[at]
        at += 1
        if code == 0x20:
            value = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x06:
            return operand
        elif code == 0x54:
            value &= operand
        else:
            test = {
                0x15: value == operand,
                0x35: value >= operand,
                0x45: bool(value & operand),
            }[code]
            at += jump_true if test else jump_false


def refused(error: int) -> int:
    return 0x00050000 | error


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("processes", ["none", "some"])
def test_exactly_the_listed_calls_are_refused(machine: str, processes: str, network: bool) -> None:
    rows = seccomp.program(machine, pid=77, processes=processes, network=network)
    assert rows is not None and len(rows) < 4096
    column = list(ARCHITECTURES).index(machine)
    names = {numbers[column]: name for name, numbers in seccomp._NUMBERS.items()}
    judged = {"clone", "kill", "tgkill", "socket", "clone3"}
    for number in range(600):
        answer = run(rows, ARCHITECTURES[machine], number)
        name = names.get(number)
        if name in judged:
            continue
        alone = (*seccomp._ALONE, *seccomp._SERVING)
        listed = name in seccomp._EVERY_CHILD or (processes == "none" and name in alone)
        assert answer == (refused(errno.EPERM) if listed else ALLOW), (number, name)


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
def test_a_local_server_may_listen_and_reach_nobody(machine: str) -> None:
    rows = seccomp.program(machine, pid=77, processes="none", network=False, local_server=True)
    assert rows is not None
    column = list(ARCHITECTURES).index(machine)

    def answer(name: str, first: int = 0, second: int = 0) -> int:
        number = seccomp._NUMBERS[name][column]
        assert number is not None
        return run(rows, ARCHITECTURES[machine], number, first, second)

    unix, internet, stream, datagram, packets, close_on_exec = 1, 2, 1, 2, 5, 0o2000000
    assert answer("socket", unix, packets | close_on_exec) == ALLOW
    for family, kind in ((unix, stream), (unix, datagram), (internet, packets), (internet, stream)):
        assert answer("socket", family, kind | close_on_exec) == refused(errno.EPERM)
    assert {answer(name) for name in ("bind", "listen", "accept", "accept4")} == {ALLOW}
    for name in ("connect", "socketpair", "execve", "pidfd_open"):
        assert answer(name) == refused(errno.EPERM)


@pytest.mark.parametrize("machine", list(ARCHITECTURES))
def test_calls_that_are_judged_by_their_argument(machine: str) -> None:
    column = list(ARCHITECTURES).index(machine)
    alone = seccomp.program(machine, pid=77, processes="none", network=True)
    some = seccomp.program(machine, pid=77, processes="some", network=False)
    assert alone is not None and some is not None

    def ask(rows: list[seccomp.Row], name: str, first: int) -> int:
        number = seccomp._NUMBERS[name][column]
        assert number is not None
        return run(rows, ARCHITECTURES[machine], number, first)

    thread = 0x3D0F00  # glibc's flags for pthread_create
    assert ask(alone, "clone", thread) == ALLOW
    assert ask(alone, "clone", 0x1200011) == refused(errno.EPERM)
    assert ask(alone, "clone3", 0) == refused(errno.ENOSYS)
    assert ask(alone, "tgkill", 77) == ALLOW
    assert ask(alone, "kill", 1) == refused(errno.EPERM)
    assert ask(alone, "kill", 2**32 - 1) == refused(errno.EPERM)
    assert ask(alone, "socket", 1) == refused(errno.EPERM)
    assert ask(some, "clone", 0x1200011) == ALLOW
    assert ask(some, "clone3", 0) == ALLOW
    assert ask(some, "kill", 1) == ALLOW
    assert ask(some, "socket", 1) == ALLOW
    assert ask(some, "socket", 2) == refused(errno.EPERM)


def test_other_architectures_end_the_process() -> None:
    rows = seccomp.program("x86_64", pid=1, processes="none", network=False)
    assert rows is not None
    assert run(rows, 0x40000003, 11) == KILL
    assert run(rows, ARCHITECTURES["x86_64"], 0x40000000 | 1) == refused(errno.ENOSYS)
    assert seccomp.program("riscv64", pid=1, processes="none", network=False) is None
