"""The CPU as a device."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Tuple

import torch

from musacoder_runtime import process_tree
from musacoder_runtime.devices import Times

_clock = time.perf_counter_ns

# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_PERTURB = -6
# glibc fills freed memory with the value and new memory with its complement. 0x7f7f... is 3.4e38
# as float32, 1.4e306 as float64, NaN as float16, and about 2**62 as int64.
_PERTURB = 0x80
_LARGEST_FLUSH = 256 << 20
_DEFAULT_CACHE = 32 << 20


class Cpu:
    torch_device = "cpu"
    own_clock = False
    sample_ns = 2e6  # makes both clocks and the messages negligible

    def __init__(self) -> None:
        self._flush_buffer: Optional[torch.Tensor] = None
        self._through_torch = False
        self._threads = 1
        self._faulted = 0  # bytes that one sample touched for the first time, at most
        self._mallopt = getattr(ctypes.CDLL(None), "mallopt", None)

    def configure(self, threads: int) -> None:
        self._threads = threads
        os.environ["OMP_NUM_THREADS"] = str(threads)
        set_extension_threads(threads)
        self._keep_memory()
        self.parallel(False)

    def _keep_memory(self) -> None:
        """Freed memory stays with the process, see `warm_memory`."""
        if self._mallopt is not None:
            self._mallopt(_M_MMAP_MAX, 0)
            self._mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)

    def warm_memory(self) -> None:
        """glibc finds no freed block for an aligned request of the same size (the block lacks room
        to align in), so tensors get memory that was never touched, again and again. The page
        faults, some microseconds for each 4 KiB on a virtual machine, would be timed instead of the
        work, on either side as chance has it. So as much as the last samples faulted in is touched
        and freed before the next one."""
        if self._faulted:
            torch.empty(2 * self._faulted, dtype=torch.uint8).fill_(0)

    @contextmanager
    def watching_memory(self) -> Iterator[None]:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        yield
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        self._faulted = max(self._faulted, faults * resource.getpagesize())

    def parallel(self, on: bool) -> None:
        # Also what OpenMP code of an extension uses: torch passes it on to the OpenMP library.
        torch.set_num_threads(self._threads if on else 1)

    def synchronize(self) -> None:
        """Nothing to wait for: a CPU operator returns when it is done."""

    def poison(self, on: bool) -> bool:
        """Through malloc, so that it covers every allocation of every library; where malloc is
        another one, through torch's own filling of uninitialised tensors."""
        if self._mallopt is not None and not self._through_torch:
            self._mallopt(_M_PERTURB, _PERTURB if on else 0)
            if not on or self._poisoned():
                return True
            self._mallopt(_M_PERTURB, 0)
        self._through_torch = True
        torch.use_deterministic_algorithms(on, warn_only=True)
        return not on or self._poisoned()

    def _poisoned(self) -> bool:
        """Blocks of a few dozen bytes may come from malloc's thread cache as they were left."""
        for size in (1 << 12, 1 << 16, 1 << 20):
            values = torch.empty(size)
            filled = values.isnan() | (values > 1e38)
            if float(filled.float().mean()) < 0.99:
                return False
        return True

    def flush(self) -> None:
        if self._flush_buffer is None:
            size = min(2 * last_level_cache(), _LARGEST_FLUSH)
            self._flush_buffer = torch.zeros(size // 4)
        self.parallel(True)
        self._flush_buffer.add_(1.0)
        self.parallel(False)

    def making(self) -> ContextManager[Any]:
        return nullcontext()

    def release(self) -> None:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def tidy(self) -> None:
        """The system pages the host's memory for both sides."""

    def crowded(self, size: int) -> bool:
        return False

    def measure(self, call: Callable[[int], None], calls: int, hold_ns: float) -> Times:
        return self.span(call, calls)

    def span(self, call: Callable[[int], None], calls: int) -> Times:
        start = _clock()
        for index in range(calls):
            call(index)
        spent = _clock() - start
        return Times(spent, spent, spent)

    def bandwidth(self) -> float:
        size = min(4 * last_level_cache(), _LARGEST_FLUSH)
        source, target = torch.ones(size // 4), torch.ones(size // 4)
        best = float("inf")
        self.parallel(True)
        for _ in range(5):
            start = time.perf_counter()
            target.copy_(source)
            best = min(best, time.perf_counter() - start)
        self.parallel(False)
        return 2 * size / best

    def changes(self) -> List[Tuple[str, str]]:
        return []

    def out_of_memory(self, error: BaseException) -> bool:
        """A limit of the sandbox or of the machine, which another try would meet again."""
        return False

    def lost(self) -> bool:
        return False

    def background_work(self) -> int:
        return process_tree.thread_work()


def set_extension_threads(threads: int) -> None:
    """The same number of threads for OpenMP code that does not ask torch."""
    for name in ("libgomp.so.1", "libiomp5.so", "libomp.so"):
        for path in _loaded(name):
            library = ctypes.CDLL(path)
            library.omp_set_num_threads(threads)


def _loaded(name: str) -> set[str]:
    stem = name.split(".so")[0]
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    paths = {line.split(None, 5)[5].strip() for line in maps.splitlines() if "/" in line}
    return {path for path in paths if Path(path).name.startswith(stem)}


def last_level_cache() -> int:
    """Bytes of the largest cache that the system names."""
    sizes = [_DEFAULT_CACHE]
    try:
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
            text = path.read_text(encoding="ascii").strip()
            factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
            sizes.append(int(text.rstrip("KM")) * factor)
    except (OSError, ValueError):
        return _DEFAULT_CACHE
    return max(sizes)


def create() -> Cpu:
    return Cpu()
