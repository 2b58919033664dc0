"""Which kernels an accelerator really ran during a call, and for how long: the profiler's view.

Neither the replay of a recorded graph nor a vendor's library called from an extension dispatches an
operator; on the device both are kernels with names. A kernel that starts although the stream that
the call stands in is still busy is on a stream of its own that does not wait for the call's; one
that has not ended when that stream goes on with what comes next is on one that the call's does not
wait for. Its inputs or its results may not be there yet, and who times the call by its stream does
not see it. An honest kernel may use other streams: it joins them on both sides. Attaching to the
device's profiler makes every later launch slower, so this comes last in the life of a child.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any, Callable, Optional, Tuple

import torch

_ACTIVITIES = {"cuda": "CUDA", "musa": "PrivateUse1"}
# About 10 ms at 2 GHz: longer than it takes to give a device all the work of a call.
_BUSY_CYCLES = 20_000_000
_GUARD = "spin_kernel"  # what `torch.cuda._sleep` runs
# Taken before a Candidate's code runs; a torch without CUDA lacks it.
_sleep: Any = getattr(torch._C, "_cuda_sleep", None)
# Both ends of a kernel are read off one clock, to less than this, in nanoseconds.
_CLOCK_ERROR = 2_000


# Name, start and length in nanoseconds, and the stream, None where it is not known.
Work = Tuple[str, int, int, Optional[int]]


def activity(torch_device: str) -> Optional[Any]:
    """The profiler's activity for a device, None where there is none to watch."""
    from torch._C import _autograd, _profiler

    name = _ACTIVITIES.get(torch_device.split(":")[0])
    found = getattr(_profiler.ProfilerActivity, name, None) if name is not None else None
    return found if found in _autograd._supported_activities() else None


def kernels(function: Callable[[], Any], torch_device: str) -> tuple[list[list[Any]], list[str]]:
    """([name, nanoseconds, launches, geometry] of all device work of `function`, by name, longest
    first, see `_geometry`; the names of those that are not in order with the call's stream). Raises
    RuntimeError where the profiler does not start."""
    from torch._C import _autograd, _profiler

    module: Any = getattr(torch, torch_device.split(":")[0])
    config = _profiler.ProfilerConfig(
        _profiler.ProfilerState.KINETO, False, False, False, False, False,
        _profiler._ExperimentalConfig(),
    )  # fmt: skip
    activities: set[Any] = {_profiler.ProfilerActivity.CPU, activity(torch_device)}
    module.synchronize()
    _autograd._prepare_profiler(config, activities)
    _autograd._enable_profiler(config, activities)
    try:
        keep_busy = _sleep if module is torch.cuda else getattr(module, "_sleep", None)
        if keep_busy is not None:
            keep_busy(_BUSY_CYCLES)
        function()
        if keep_busy is not None:
            keep_busy(1)
        module.synchronize()
    finally:
        result = _autograd._disable_profiler()
    events = [
        event
        for event in result.events()
        if event.device_type().name in ("CUDA", "PrivateUse1", "MUSA") and not _annotates(event)
    ]
    work, others = _between([_work(event) for event in events])
    found: dict[str, list[Any]] = {}
    for index in work:
        event = events[index]
        entry = found.setdefault(event.name(), [event.name(), 0, 0, _geometry(event)])
        entry[1] += _work(event)[2]
        entry[2] += 1
    return sorted(found.values(), key=lambda entry: -entry[1]), others


def unordered(events: list[Work]) -> list[str]:
    """The names of those that start before the first guard ends, or end after the last guard
    starts, sorted. The guards are the kernels that keep the call's stream busy before the call and
    stand in it behind the call; work in their own stream is in order whatever the clock says."""
    return _between(events)[1]


def _between(events: list[Work]) -> tuple[list[int], list[str]]:
    """Places of all that are no guard; names of those that are out of order."""
    guards = sorted(
        (start, place) for place, (name, start, _, _) in enumerate(events) if _GUARD in name
    )
    if not guards:
        return list(range(len(events))), []
    # What a Candidate calls by the guards' name is between them, or in another stream.
    first = guards[0][1]
    name, start, spent, stream = events[first]
    alike = [place for _, place in guards if events[place][0] == name]
    last = max((p for p in alike if events[p][3] == stream), key=lambda place: events[place][1])
    opens = start + spent
    closes = events[last][1] if last != first else None
    work = [place for place in range(len(events)) if place not in (first, last)]
    strange = set()
    for place in work:
        title, begin, length, own = events[place]
        if own is not None and own == stream:
            continue
        early = begin + _CLOCK_ERROR < opens
        late = closes is not None and begin + length > closes + _CLOCK_ERROR
        if early or late:
            strange.add(title)
    return work, sorted(strange)


def _work(event: Any) -> Work:
    """torch before 2.4 told microseconds; not every torch tells the stream."""
    if hasattr(event, "start_ns"):
        start, spent = event.start_ns(), event.duration_ns()
    else:
        start, spent = event.start_us() * 1000, event.duration_us() * 1000
    stream = event.device_resource_id() if hasattr(event, "device_resource_id") else None
    return event.name(), int(start), int(spent), stream


def _annotates(event: Any) -> bool:
    """Whether it is a range that the code has named, and no work."""
    return hasattr(event, "is_user_annotation") and bool(event.is_user_annotation())


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
