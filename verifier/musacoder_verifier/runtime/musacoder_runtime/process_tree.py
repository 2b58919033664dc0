"""Descendants and threads of this process as /proc shows them, and what they hold and compute."""

from __future__ import annotations

import os
import signal
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")


def own_pid() -> int:
    """This process's id in the /proc that is mounted here, which may be an outer namespace's."""
    return int(os.readlink("/proc/self"))


def descendants(root: int) -> list[int]:
    """Every process below `root`, zombies included, ids as in /proc."""
    found: list[int] = []
    todo = [root]
    while todo:
        for child in children(todo.pop()):
            found.append(child)
            todo.append(child)
    return found


def children(pid: int) -> list[int]:
    """Direct children of `pid`, zombies included."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except OSError:
        pass  # it ended meanwhile
    return found


def memory_bytes(pid: int, *, shared: bool = True) -> int:
    """Resident memory without mapped files: anonymous and, where `shared`, shared memory."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            _, resident, files_and_shared, *_ = map(int, file.read().split())
        anonymous = (resident - files_and_shared) * _PAGE
        return anonymous + (_shared_memory(pid) if shared else 0)
    except (OSError, ValueError):
        return 0


def _shared_memory(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("RssShmem:"):
                return int(line.split()[1]) * 1024
    return 0


def thread_work() -> int:
    """Nanoseconds that threads of this process other than its first have computed so far."""
    own = str(os.getpid())
    total = 0
    for thread in os.listdir("/proc/self/task"):
        if thread == own:
            continue
        try:
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except (OSError, IndexError, ValueError):  # the thread has just ended
            continue
    return total


def kill_descendants(seconds: float = 2.0) -> bool:
    """Kills and reaps everything below this process, which must be a subreaper; new ones that
    start meanwhile too, until none is left or `seconds` are over. Whether none is left."""
    deadline = time.monotonic() + seconds
    own = own_pid()
    while time.monotonic() < deadline:
        for pid in descendants(own):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.001)
    return False
