"""How a child narrows itself after the fork, in three steps along the way from zygote to child.

`isolate` runs in the process that is about to fork the supervisor, `furnish` in the supervisor
(process 1 of the new namespaces), `narrow` in the child itself. Each returns a report by layer,
"on", "off: why" (not asked for) or "unavailable: why"; what this kernel lacks is never silent.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from musacoder_runtime import landlock, limits, linux, seccomp

Report = dict[str, str]

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
_SHARED_MEMORY = "/dev/shm"
_NAMESPACES = {
    "user_namespace": linux.CLONE_NEWUSER,
    "pid_namespace": linux.CLONE_NEWPID,
    "mount_namespace": linux.CLONE_NEWNS,
    "ipc_namespace": linux.CLONE_NEWIPC,
    "network_namespace": linux.CLONE_NEWNET,
}


def isolate(*, network: bool, private_processes: bool = True) -> Report:
    """New user, pid, mount, ipc and (unless `network`) net namespaces for the next fork.

    Without `private_processes` there is no pid namespace. The process must have one thread. Where
    a user namespace is refused, the others are tried without it: root may have them.
    """
    wanted = dict(_NAMESPACES)
    report: Report = {}
    if network:
        del wanted["network_namespace"]
        report["network_namespace"] = "off: this child may use the network"
    if not private_processes:
        del wanted["pid_namespace"]
        report["pid_namespace"] = "off: the device's driver needs /proc, which stays the system's"
    user, group = os.geteuid(), os.getegid()
    rest = sum(flag for name, flag in wanted.items() if name != "user_namespace")
    try:
        linux.unshare(linux.CLONE_NEWUSER | rest)
    except OSError as refused:
        report["user_namespace"] = f"unavailable: {refused.strerror}"
        del wanted["user_namespace"]
        try:
            linux.unshare(rest)
        except OSError as error:
            report.update(dict.fromkeys(wanted, f"unavailable: {error.strerror}"))
            return report
    else:
        try:
            _map_identity(user, group)
        except OSError as error:
            report.update(dict.fromkeys(wanted, "on"))
            report["user_namespace"] = f"unavailable: identity not mapped, {error.strerror}"
            return report
    report.update(dict.fromkeys(wanted, "on"))
    return report


def _map_identity(user: int, group: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def furnish(report: Report, *, memory_bytes: int | None, process_count: int) -> None:
    """In process 1 of the new namespaces: its own /proc and /dev/shm, and a bound on process ids
    (the one bound on processes that holds for root). Adds to `report`."""
    if report.get("mount_namespace") != "on":
        return
    flags = linux.MS_NOSUID | linux.MS_NODEV
    try:
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        size = "50%" if memory_bytes is None else str(memory_bytes)
        linux.mount("tmpfs", _SHARED_MEMORY, "tmpfs", flags, f"mode=1777,size={size}")
        report["private_temporary_folder"] = "on"
    except OSError as error:
        report["private_temporary_folder"] = f"unavailable: {error.strerror}"
    if report.get("pid_namespace") != "on":
        return
    try:
        linux.mount("proc", "/proc", "proc", flags | linux.MS_NOEXEC)
        report["private_proc"] = "on"
    except OSError as error:
        report["private_proc"] = f"unavailable: {error.strerror}"
        report["process_id_limit"] = "unavailable: needs a private /proc"
        return
    try:
        # A limit of the namespace itself only since Linux 6.14; before, this is not writable.
        with open("/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
            # Threads count too: OpenMP's, and those of each process that loads or compiles.
            file.write(str(max(512, 2 * process_count, 16 * (os.cpu_count() or 1))))
        report["process_id_limit"] = "on"
    except OSError as error:
        report["process_id_limit"] = f"unavailable: {error.strerror}"


def temporary_folder(report: Report) -> str:
    """A folder for `tempfile`: inside the private /dev/shm where there is one, so that nothing is
    left behind however the child ends; else an ordinary one, which someone must remove."""
    if report.get("private_temporary_folder") == "on":
        folder = os.path.join(_SHARED_MEMORY, "tmp")
        os.mkdir(folder, 0o700)
        return folder
    return tempfile.mkdtemp(prefix="musacoder-")


def narrow(
    report: Report, asked: limits.Limits, writable: Sequence[str], *, local_server: bool = False
) -> None:
    """In the child, with one thread: last, irrevocable steps. Adds to `report`. `local_server`: see
    `seccomp.program`."""
    try:
        linux.set_no_new_privileges()
        report["no_new_privileges"] = "on"
    except OSError as error:
        report["no_new_privileges"] = f"unavailable: {error.strerror}"
    places = [*writable, *_DEVICES]
    if report.get("private_temporary_folder") == "on":
        places.append(_SHARED_MEMORY)
    report["landlock"] = landlock.restrict(places, network=asked.network)
    try:
        linux.drop_capabilities()
        report["no_capabilities"] = "on"
    except OSError as error:
        report["no_capabilities"] = f"unavailable: {error.strerror}"
    report["seccomp"] = seccomp.install(
        pid=os.getpid(),
        processes=asked.processes,
        network=asked.network,
        local_server=local_server,
    )
