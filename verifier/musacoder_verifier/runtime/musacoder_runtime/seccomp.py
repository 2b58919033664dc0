"""The seccomp filter of a child: which system calls fail, and with which error.

Calls fail with an error instead of killing, because honest libraries probe and fall back: glibc
starts threads by `clone` when `clone3` says ENOSYS, and flags of `clone3` lie in memory, where
a filter cannot read them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from musacoder_runtime import linux

Row = tuple[int, int, int, int]

# (x86_64, aarch64); None: this machine type lacks the call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "perf_event_open": (298, 241),
    "bpf": (321, 280), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435),
    "execve": (59, 221), "execveat": (322, 281), "socket": (41, 198), "socketpair": (53, 199),
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "setsid": (112, 157), "setpgid": (109, 154),
    "shmget": (29, 194), "msgget": (68, 186),
}  # fmt: skip

_EVERY_CHILD = (
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "perf_event_open",
    "bpf", "userfaultfd", "add_key", "request_key", "keyctl", "io_uring_setup",
    "io_uring_enter", "io_uring_register", "mount", "umount2", "pivot_root", "chroot",
    "unshare", "setns", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "open_by_handle_at", "init_module", "finit_module", "delete_module",
    "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl",
    "settimeofday", "clock_settime", "adjtimex", "clock_adjtime",
)  # fmt: skip
_ALONE = (
    "fork", "vfork", "execve", "execveat", "socketpair", "connect", "tkill", "rt_sigqueueinfo",
    "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal", "setsid", "setpgid", "shmget",
    "msgget",
)  # fmt: skip
_SERVING = ("bind", "listen", "accept", "accept4")

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN, _AND = 0x20, 0x15, 0x45, 0x35, 0x06, 0x54
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
_AF_UNIX = 1
_SOCK_SEQPACKET, _SOCK_TYPE_MASK = 5, 0xF


def program(
    machine: str, *, pid: int, processes: str, network: bool, local_server: bool = False
) -> list[Row] | None:
    """The filter for a child with process id `pid` (as it sees itself), None for a machine type
    that is not known here.

    `processes="none"`: no new process, no program start, no socket, no signal to anything but
    itself; threads work. `local_server`: except that a unix socket of type SEQPACKET may be opened,
    bound and listened on, which CUDA's start does; it cannot reach another one, since connecting
    stays refused and this type cannot send without. `processes="some"`: only what no honest program
    does is refused, and without `network` sockets other than AF_UNIX.
    """
    if machine not in _ARCHITECTURES:
        return None
    column = list(_ARCHITECTURES).index(machine)

    def number(name: str) -> int | None:
        return _NUMBERS[name][column]

    rows: list[Row] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        rows += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    rows += _refuse(map(number, _EVERY_CHILD), errno.EPERM)
    if processes == "none":
        rows += _refuse(map(number, _ALONE), errno.EPERM)
        if local_server:
            rows += _unless_local(number("socket"))
        else:
            rows += _refuse(map(number, ("socket", *_SERVING)), errno.EPERM)
        rows += _refuse([number("clone3")], errno.ENOSYS)
        rows += _unless(number("clone"), 0, (_ANY_BIT, _CLONE_THREAD))
        rows += _unless(number("kill"), 0, (_EQUAL, pid))
        rows += _unless(number("tgkill"), 0, (_EQUAL, pid))
    elif not network:
        rows += _unless(number("socket"), 0, (_EQUAL, _AF_UNIX))
    rows.append((_RETURN, 0, 0, _ALLOW))
    return rows


def _refuse(numbers: Iterable[int | None], error: int) -> list[Row]:
    rows: list[Row] = []
    for number in numbers:
        if number is not None:
            rows += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    return rows


def _unless(number: int | None, argument: int, test: tuple[int, int]) -> list[Row]:
    """Refuses the call unless the low half of `argument` passes `test` (code, operand)."""
    if number is None:
        return []
    code, operand = test
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _ARGUMENT_AT + 8 * argument),
        (code, 1, 0, operand),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _unless_local(number: int | None) -> list[Row]:
    """Refuses `socket` unless it is for AF_UNIX and SOCK_SEQPACKET, whatever its flags."""
    if number is None:
        return []
    return [
        (_EQUAL, 0, 7, number),
        (_LOAD, 0, 0, _ARGUMENT_AT),
        (_EQUAL, 0, 3, _AF_UNIX),
        (_LOAD, 0, 0, _ARGUMENT_AT + 8),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_EQUAL, 1, 0, _SOCK_SEQPACKET),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def install(*, pid: int, processes: str, network: bool, local_server: bool = False) -> str:
    """Installs the filter; returns "on" or "unavailable: why"."""
    machine = linux.machine()
    rows = program(
        machine, pid=pid, processes=processes, network=network, local_server=local_server
    )
    if rows is None:
        return f"unavailable: no table of system calls for {machine}"
    try:
        linux.install_filter(rows)
    except OSError as error:
        return f"unavailable: {error.strerror}"
    return "on"
