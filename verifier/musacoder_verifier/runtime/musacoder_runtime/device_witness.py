"""Which kernels an accelerator really ran during a call, and for how long: the profiler's view.

Neither the replay of a recorded graph nor a vendor's library called from an extension dispatches an
operator; on the device both are kernels with names. A kernel that starts although the stream that
the call stands in is still busy is on a stream of its own that waits for nobody: its inputs may not
be there yet, and who times the call by its stream does not see it. Attaching to the device's
profiler makes every later launch slower, so this comes last in the life of a child.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any, Callable, Optional

import torch

_ACTIVITIES = {"cuda": "CUDA", "musa": "PrivateUse1"}
# About 10 ms at 2 GHz: longer than it takes to give a device all the work of a call.
_BUSY_CYCLES = 20_000_000
_BUSY_KERNEL = "spin_kernel"


def activity(torch_device: str) -> Optional[Any]:
    """The profiler's activity for a device, None where there is none to watch."""
    from torch._C import _autograd, _profiler

    name = _ACTIVITIES.get(torch_device.split(":")[0])
    found = getattr(_profiler.ProfilerActivity, name, None) if name is not None else None
    return found if found in _autograd._supported_activities() else None


def kernels(function: Callable[[], Any], torch_device: str) -> tuple[list[list[Any]], list[str]]:
    """([name, nanoseconds, launches, geometry] of all device work of `function`, by name, longest
    first, see `_geometry`; the names of those that did not wait for the call's stream). Raises
    RuntimeError where the profiler does not start."""
    from torch._C import _autograd, _profiler

    module: Any = getattr(torch, torch_device.split(":")[0])
    config = _profiler.ProfilerConfig(
        _profiler.ProfilerState.KINETO, False, False, False, False, False,
        _profiler._ExperimentalConfig(),
    )  # fmt: skip
    activities = {_profiler.ProfilerActivity.CPU, activity(torch_device)}
    module.synchronize()
    _autograd._prepare_profiler(config, activities)
    _autograd._enable_profiler(config, activities)
    try:
        keep_busy = getattr(module, "_sleep", None)
        if keep_busy is not None:
            keep_busy(_BUSY_CYCLES)
        function()
        module.synchronize()
    finally:
        result = _autograd._disable_profiler()
    events = [
        event
        for event in result.events()
        if event.device_type().name in ("CUDA", "PrivateUse1", "MUSA")
    ]
    found: dict[str, list[Any]] = {}
    for event in events:
        if _BUSY_KERNEL not in event.name():
            entry = found.setdefault(event.name(), [event.name(), 0, 0, _geometry(event)])
            entry[1] += event.duration_ns()
            entry[2] += 1
    times = [(event.name(), event.start_ns(), event.duration_ns()) for event in events]
    return sorted(found.values(), key=lambda entry: -entry[1]), unordered(times)


def unordered(events: list[tuple[str, int, int]]) -> list[str]:
    """Of (name, start, duration), the names of those that start before the kernel ends which keeps
    the call's stream busy, sorted."""
    until = max((start + ns for name, start, ns in events if _BUSY_KERNEL in name), default=0)
    return sorted({name for name, start, _ in events if start < until and _BUSY_KERNEL not in name})


def _geometry(event: Any) -> dict[str, int]:
    """`blocks`, `threads` (a block), `shared_bytes` and `registers` of a launch; empty where this
    torch does not hand on what the device's profiler says of it."""
    try:
        told = json.loads("{" + event.metadata_json().strip().strip("{}") + "}")
        return {
            "blocks": prod(told["grid"]),
            "threads": prod(told["block"]),
            "shared_bytes": int(told["shared memory"]),
            "registers": int(told["registers per thread"]),
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
