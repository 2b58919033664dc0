"""Runs one tool for a parent that may die at any time; started by file path, by `tools.run`.

`tool_guard.py LIFELINE NICE ARGUMENT...`: the tool runs in a session of its own, and its whole
process group is killed when the pipe LIFELINE closes. A compiler driver does not take its
children along when it is killed, so that the death signal of the kernel is not enough.
"""

import os
import select
import signal
import sys


def main(lifeline: int, niceness: int, arguments: list[str]) -> int:
    os.nice(niceness)
    tool = os.posix_spawn(arguments[0], arguments, os.environ, setsid=True)
    ended = os.pidfd_open(tool)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(ended, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    if ended not in ready:
        os.killpg(tool, signal.SIGKILL)
    _, status = os.waitpid(tool, 0)
    try:  # noqa: SIM105 (contextlib costs more than the rest of this program)
        # What the tool left running in its group, such as a daemon of a compiler cache.
        os.killpg(tool, signal.SIGKILL)
    except ProcessLookupError:
        pass
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
