"""What a device can do at best, measured: the roofs that a kernel is held against."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

import torch

from musacoder_runtime import devices

# A product of two square matrices; grown until it lasts long enough or is this large.
_SMALLEST = 512
_LARGEST = 8192
_LONG = 20e-3  # seconds
_ROUNDS = 3
# Of one call after another, to see how many threads are at work.
_WATCHED = 30e-3


def measure(device: devices.Device, dtypes: list[str]) -> dict[str, Any]:
    """Bytes a second of a copy, operations a second (two for a multiply-add) of a large matrix
    product in each dtype that the device multiplies, and its multiprocessors or None."""
    rates = {}
    for dtype in dtypes:
        rate = matrix_rate(device, dtype)
        if rate is not None:
            rates[dtype] = rate
    return {
        "bytes_per_second": device.bandwidth(),
        "matrix": rates,
        "multiprocessors": _multiprocessors(device.torch_device),
    }


def matrix_rate(device: devices.Device, dtype: str) -> Optional[float]:
    """Operations a second of `torch.mm` at the precision that torch is set to; None where the
    device has no product of that dtype."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        return None
    size = _SMALLEST
    best = 0.0
    device.parallel(True)
    try:
        while True:
            left = torch.ones(size, size, dtype=kind, device=device.torch_device)
            right = left.clone()
            seconds = min(_timed(device, left, right) for _ in range(_ROUNDS))
            best = max(best, 2.0 * size**3 / seconds)
            if seconds > _LONG or size >= _LARGEST:
                return best
            size *= 2
    except RuntimeError:  # not implemented for this dtype, or no memory for a larger one
        return best or None
    finally:
        device.parallel(False)


def _timed(device: devices.Device, left: torch.Tensor, right: torch.Tensor) -> float:
    device.synchronize()
    start = time.perf_counter()
    torch.mm(left, right)
    device.synchronize()
    return time.perf_counter() - start


def _multiprocessors(name: str) -> Optional[int]:
    module = getattr(torch, name.split(":")[0], None)
    properties = getattr(module, "get_device_properties", None)
    count = getattr(properties(name), "multi_processor_count", None) if properties else None
    return int(count) if count else None


def busy_threads(function: Callable[[], Any]) -> float:
    """How many threads of this process compute for each one that the caller's own computes, over
    repeated calls: a busy machine slows all of them. Threads of OpenMP that spin while they wait
    count too, so that a loop without enough work for all is not seen here."""
    ends = time.perf_counter() + _WATCHED
    function()  # may have to start the threads
    own, everyone = time.thread_time_ns(), time.process_time_ns()
    while True:
        function()
        if time.perf_counter() > ends:
            break
    return (time.process_time_ns() - everyone) / max(time.thread_time_ns() - own, 1)
