"""What a kernel takes of a multiprocessor, as the device's assembler reports it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '(\w+)' for '(\w+)'")
_FUNCTION = re.compile(r"^ptxas info\s*: Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"^ptxas info\s*: Used (\d+) registers(.*)$")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")


@dataclass(frozen=True, slots=True)
class KernelResources:
    """One kernel as compiled for one architecture.

    `shared_bytes` is what the kernel declares; what a launch adds to it is not known here. Spills
    are bytes of registers that were written to and read from memory, over the whole kernel's code.
    """

    symbol: str  # its linkage name
    architecture: str  # "sm_90"
    registers: int  # of each thread
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def ptxas_report(output: str) -> tuple[KernelResources, ...]:
    """The kernels in what `ptxas -v` printed, in its order."""
    return tuple(_kernels(output))


def _kernels(output: str) -> Iterator[KernelResources]:
    symbol = architecture = function = ""
    stack = (0, 0, 0)
    for line in output.splitlines():
        if entry := _ENTRY.match(line):
            symbol, architecture = entry[1], entry[2]
            stack = (0, 0, 0)
        elif named := _FUNCTION.match(line):
            function = named[1]
        elif (found := _STACK.search(line)) and function == symbol:
            stack = (int(found[1]), int(found[2]), int(found[3]))
        elif (used := _USED.match(line)) and symbol:
            shared = _SHARED.search(used[2])
            size = int(shared[1]) + int(shared[2] or 0) if shared else 0
            yield KernelResources(symbol, architecture, int(used[1]), size, *stack)
            symbol = ""
