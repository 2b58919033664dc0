"""One NVIDIA GPU as a device: the first that this process sees.

The functions that figures rest on are taken at import, before a Candidate's code runs. What torch
does not offer goes to the driver, whose library torch has loaded, through ctypes; its names and
numbers are those of cuda.h and driver_types.h.
"""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Tuple

import torch

from musacoder_runtime import process_tree, tensor_tree
from musacoder_runtime.devices import Times

_clock = time.perf_counter_ns
# A torch without CUDA lacks the first two, and cannot make a `Cuda`.
_synchronize: Any = getattr(torch._C, "_cuda_synchronize", None)
_sleep: Any = getattr(torch._C, "_cuda_sleep", None)
_initialise: Any = torch.cuda.init
_event: Any = torch.cuda.Event
_memory_snapshot: Any = torch.cuda.memory_snapshot
_current_stream = torch.cuda.current_stream

_PERSISTING_L2 = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_LEAST_FLUSH = 64 << 20
# NaN as float64, float32, float16 and bfloat16, -1 as an integer; and about 3.4e38 as float32 and
# bfloat16, NaN as float16, a large positive integer. In turns: a maximum hides one, a minimum the
# other.
_PATTERNS = (0xFF, 0x7F)
# torch's allocator serves requests up to 1 MiB from segments of 2 MiB, larger ones from others.
_SMALL_REQUEST, _SMALL_SEGMENTS = 1 << 20, 16
_LEAST_POISON = 256 << 20
_POISON_SHARE = 0.25  # of the memory that is free, at most
# A side holds its inputs and outputs a few times over, and there are two sides.
_CROWDED_SHARE = 1 / 16
_FASTEST_NS = 100.0  # no kernel is faster; what the events' own time leaves may be
_CALIBRATING_CYCLES = 200_000
_COPY_BYTES = 1 << 30
_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


class DeviceError(RuntimeError):
    """A kernel could not be launched, or failed while it ran."""


class Cuda:
    torch_device = "cuda:0"
    own_clock = True
    sample_ns = 3e5

    def __init__(self) -> None:
        self._threads = 1
        self._flush_buffer: Optional[torch.Tensor] = None
        self._events: List[Tuple[Any, Any]] = []
        self._event_ns = 0.0
        self._cycle_ns = 0.5
        self._peak = 0  # bytes that one forward took, at most
        self._before: Optional[int] = None
        self._poisonings = 0
        self._stream: Any = None
        self._limit: Optional[int] = None
        self._driver: Any = None
        self._runtime: Any = None

    def configure(self, threads: int) -> None:
        self._threads = threads
        self.parallel(False)
        tensor_tree.digests.fingerprints = True
        _initialise()
        self._stream = _current_stream()
        self._driver = ctypes.CDLL("libcuda.so.1")
        path = _loaded("libcudart.so")
        self._runtime = None if path is None else ctypes.CDLL(path)
        self._shrink_persisting()
        self._limit = self._persisting()
        self._calibrate()

    def parallel(self, on: bool) -> None:
        torch.set_num_threads(self._threads if on else 1)

    def making(self) -> ContextManager[Any]:
        return torch.device(self.torch_device)

    def synchronize(self) -> None:
        self._raise_launch_error()
        _synchronize()

    def _raise_launch_error(self) -> None:
        """A launch that is refused (too many threads, too much shared memory) leaves its error
        where only the next caller that asks finds it."""
        if self._runtime is None:
            return
        code = self._runtime.cudaGetLastError()
        if code:
            self._runtime.cudaGetErrorString.restype = ctypes.c_char_p
            text = self._runtime.cudaGetErrorString(code) or b"unknown error"
            raise DeviceError(f"CUDA error: {text.decode('utf-8', 'replace')}")

    def _calibrate(self) -> None:
        """What a pair of events costs by itself, and how long the blocking kernel's cycle is."""
        pairs = [(_event(enable_timing=True), _event(enable_timing=True)) for _ in range(21)]
        for repeat in range(2):  # the first time loads the kernel
            before, after = pairs[repeat]
            before.record(self._stream)
            _sleep(_CALIBRATING_CYCLES)
            after.record(self._stream)
            _synchronize()
            self._cycle_ns = max(0.1, before.elapsed_time(after) * 1e6 / _CALIBRATING_CYCLES)
        _sleep(_CALIBRATING_CYCLES)
        for before, after in pairs:
            before.record(self._stream)
            after.record(self._stream)
        _synchronize()
        spent = sorted(before.elapsed_time(after) * 1e6 for before, after in pairs)
        self._event_ns = spent[len(spent) // 2]

    # Memory

    def poison(self, on: bool) -> bool:
        """Fill every freed block that torch's allocator keeps, and see to it that it keeps enough
        for what comes: fresh memory of the driver is all zeros."""
        if not on:
            return True
        pattern = _PATTERNS[self._poisonings % len(_PATTERNS)]
        self._poisonings += 1
        try:
            self._provide()
            if not self._fill_free(pattern):
                return False
        except (RuntimeError, KeyError, TypeError):  # another allocator than torch's own
            return False
        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_allocated()
        return True

    def _provide(self) -> None:
        """Have blocks of both kinds in the allocator's keeping."""
        self._note_peak()
        small = [
            torch.empty(_SMALL_REQUEST, dtype=torch.uint8, device=self.torch_device)
            for _ in range(2 * _SMALL_SEGMENTS)
        ]
        free = torch.cuda.mem_get_info()[0]
        kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        wanted = max(_LEAST_POISON, 2 * self._peak)
        large = min(wanted, kept + int(_POISON_SHARE * free))
        with suppress(torch.cuda.OutOfMemoryError):  # what is kept already is filled
            torch.empty(large, dtype=torch.uint8, device=self.torch_device)
        del small

    def _note_peak(self) -> None:
        if self._before is not None:
            self._peak = max(self._peak, torch.cuda.max_memory_allocated() - self._before)
            self._before = None

    def _fill_free(self, pattern: int) -> bool:
        for segment in _memory_snapshot():
            if segment.get("device", 0) != 0:
                continue
            at = int(segment["address"])
            for block in segment["blocks"]:
                size = int(block["size"])
                if block["state"] == "inactive" and self._driver.cuMemsetD8_v2(
                    ctypes.c_uint64(at), ctypes.c_ubyte(pattern), ctypes.c_size_t(size)
                ):
                    return False
                at += size
        _synchronize()
        return True

    def release(self) -> None:
        self._flush_buffer = None
        torch.cuda.empty_cache()

    def tidy(self) -> None:
        if self.crowded(torch.cuda.memory_reserved() - torch.cuda.memory_allocated()):
            self.release()

    def crowded(self, size: int) -> bool:
        return size > _CROWDED_SHARE * torch.cuda.mem_get_info()[1]

    def warm_memory(self) -> None:
        """torch's allocator keeps what a call freed; the first call of a shape, which asks the
        driver, is a warm-up."""

    @contextmanager
    def watching_memory(self) -> Iterator[None]:
        yield

    def out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            return True
        text = str(error) if isinstance(error, RuntimeError) else ""
        return any(word in text for word in _OUT_OF_MEMORY)

    def lost(self) -> bool:
        """An illegal access, a failed assertion and the like end a CUDA context."""
        try:
            _synchronize()
        except RuntimeError:
            return True
        return False

    # Caches

    def flush(self) -> None:
        self._shrink_persisting()
        self._overwrite_cache()

    def _overwrite_cache(self) -> None:
        if self._flush_buffer is None:
            properties = torch.cuda.get_device_properties(0)
            size = max(_LEAST_FLUSH, 2 * int(getattr(properties, "L2_cache_size", 0)))
            self._flush_buffer = torch.empty(size // 4, dtype=torch.int32, device=self.torch_device)
        self._flush_buffer.zero_()

    def _shrink_persisting(self) -> None:
        """No line of L2 stays by a Candidate's wish; cards without such lines refuse this."""
        self._driver.cuCtxResetPersistingL2Cache()
        self._driver.cuCtxSetLimit(_PERSISTING_L2, ctypes.c_size_t(0))

    def _persisting(self) -> Optional[int]:
        value = ctypes.c_size_t()
        if self._driver.cuCtxGetLimit(ctypes.byref(value), _PERSISTING_L2):
            return None
        return int(value.value)

    def changes(self) -> List[Tuple[str, str]]:
        found = []
        size = self._persisting()
        if size != self._limit:
            text = f"{size} bytes of L2 set aside for persisting accesses"
            found.append(("persisting-cache", text))
            self._shrink_persisting()
        if _current_stream() != self._stream:
            found.append(("other-stream", "the current stream, which was not put back"))
            torch.cuda.set_stream(self._stream)
        return found

    # Clocks

    def measure(self, call: Callable[[int], None], calls: int, hold_ns: float) -> Times:
        """Events around each call, behind a kernel that holds the queue up until the host has
        handed the call over: what is measured is the device's work, not the launching of it."""
        while len(self._events) < calls:
            self._events.append((_event(enable_timing=True), _event(enable_timing=True)))
        pairs = self._events[:calls]
        cycles = int(hold_ns / self._cycle_ns)
        host = 0
        self.synchronize()
        begin = _clock()
        for index, (before, after) in enumerate(pairs):
            if cycles:
                _sleep(cycles)
            self._overwrite_cache()
            before.record(self._stream)
            start = _clock()
            call(index)
            host += _clock() - start
            after.record(self._stream)
            # Else the host would run ahead until the queue is full, and wait in the middle.
            _synchronize()
        span = _clock() - begin
        self._raise_launch_error()
        device = sum(
            max(_FASTEST_NS, before.elapsed_time(after) * 1e6 - self._event_ns)
            for before, after in pairs
        )
        return Times(device, host, span)

    def span(self, call: Callable[[int], None], calls: int) -> Times:
        self.synchronize()
        start = _clock()
        for index in range(calls):
            call(index)
        handed = _clock()
        _synchronize()
        spent = _clock() - start
        self._raise_launch_error()
        return Times(spent, handed - start, spent)

    def _best_ns(self, work: Callable[[], Any], repeats: int = 5) -> float:
        best = float("inf")
        for _ in range(repeats + 1):  # the first one loads the kernel
            before, after = _event(enable_timing=True), _event(enable_timing=True)
            _sleep(int(50_000 / self._cycle_ns))
            before.record(self._stream)
            work()
            after.record(self._stream)
            _synchronize()
            best = min(best, before.elapsed_time(after) * 1e6)
        return best

    def bandwidth(self) -> float:
        size = min(_COPY_BYTES, torch.cuda.mem_get_info()[0] // 8)
        source = torch.empty(size, dtype=torch.uint8, device=self.torch_device)
        target = torch.empty_like(source)
        return 2.0 * size / (self._best_ns(lambda: target.copy_(source)) * 1e-9)

    def background_work(self) -> int:
        """CUDA's own threads sleep; what computes beside is the Candidate's."""
        return process_tree.thread_work()


def _loaded(stem: str) -> Optional[str]:
    """The path under which a library is loaded in this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.split(None, 5)[5].strip() if "/" in line else ""
            if os.path.basename(path).startswith(stem):
                return path
    return None


def create() -> Cuda:
    if not torch.cuda.is_available():
        raise DeviceError(
            f"torch {torch.__version__} of this interpreter does not find a CUDA device"
        )
    return Cuda()
