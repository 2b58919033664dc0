"""Which kernels an accelerator really ran during a call, and for how long: the profiler's view.

Neither the replay of a recorded graph nor a vendor's library called from an extension dispatches an
operator; on the device both are kernels with names. Attaching to the device's profiler makes
every later launch slower, so this comes last in the life of a child.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any, Callable, Optional

_ACTIVITIES = {"cuda": "CUDA", "musa": "PrivateUse1"}


def activity(torch_device: str) -> Optional[Any]:
    """The profiler's activity for a device, None where there is none to watch."""
    from torch._C import _autograd, _profiler

    name = _ACTIVITIES.get(torch_device.split(":")[0])
    found = getattr(_profiler.ProfilerActivity, name, None) if name is not None else None
    return found if found in _autograd._supported_activities() else None


def kernels(
    function: Callable[[], Any], watched: Any, synchronize: Callable[[], None]
) -> list[list[Any]]:
    """[name, nanoseconds, launches, geometry] of all device work of `function`, by name, longest
    first; see `_geometry`. Raises RuntimeError where the profiler does not start."""
    from torch._C import _autograd, _profiler

    config = _profiler.ProfilerConfig(
        _profiler.ProfilerState.KINETO, False, False, False, False, False,
        _profiler._ExperimentalConfig(),
    )  # fmt: skip
    activities = {_profiler.ProfilerActivity.CPU, watched}
    synchronize()
    _autograd._prepare_profiler(config, activities)
    _autograd._enable_profiler(config, activities)
    try:
        function()
        synchronize()
    finally:
        result = _autograd._disable_profiler()
    found: dict[str, list[Any]] = {}
    for event in result.events():
        if event.device_type().name in ("CUDA", "PrivateUse1", "MUSA"):
            entry = found.setdefault(event.name(), [event.name(), 0, 0, _geometry(event)])
            entry[1] += event.duration_ns()
            entry[2] += 1
    return sorted(found.values(), key=lambda entry: -entry[1])


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
