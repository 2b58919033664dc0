"""Runs one tool for a parent that may die at any time; started by file path, by `tools.run`.

`tool_guard.py LIFELINE NICE ARGUMENT...`: everything below the tool is killed when the pipe
LIFELINE closes, and when the tool ends. A compiler driver does not take its children along when
it is killed, so that the death signal of the kernel is not enough; ninja gives each of its
commands a process group of its own, so that the group is not enough either.
"""

import os
import select
import sys
from pathlib import Path

# Started without site-packages; the runtime's folder needs the standard library alone.
sys.path.insert(0, str(Path(__file__).resolve().parent / "runtime"))

from musacoder_runtime import linux, process_tree


def main(lifeline: int, niceness: int, arguments: list[str]) -> int:
    os.nice(niceness)
    # What loses its parent becomes a child of this process instead of getting lost.
    linux.adopt_orphans()
    tool = os.posix_spawn(arguments[0], arguments, os.environ, setsid=True)
    ended = os.pidfd_open(tool)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(ended, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    code = -9
    if ended in ready:
        code = os.waitstatus_to_exitcode(os.waitpid(tool, 0)[1])
    process_tree.kill_descendants()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
