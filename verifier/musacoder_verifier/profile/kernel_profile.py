"""KernelProfile: the facts about a kernel's speed, the bottleneck in words, and what follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Bottleneck = Literal[
    "memory",  # the roof nearest to it is copy bandwidth
    "compute",  # the roof nearest to it is the rate of matrix products
    "launch",  # the device is idle most of the time
    "parallelism",  # too few blocks, or too few threads at work
    "spills",
    "occupancy",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """One device function. What nobody reported is None.

    `launches` and `seconds` (of device time) are of one call of forward. Shared memory is static
    and dynamic; spills are bytes that a thread stores.
    """

    name: str
    launches: int | None = None
    seconds: float | None = None
    blocks: int | None = None
    threads: int | None = None  # a block
    registers: int | None = None  # a thread
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    occupancy: float | None = None  # 0 to 1, of the warps that a multiprocessor could hold
    occupancy_limiter: str | None = None


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """`bytes_moved` and `operations` are the least that the Reference's graph asks for (see
    `work`), rates are these over the Candidate's median time, ceilings were measured on the same
    device. Rates are in bytes and operations a second. `counters` come from a vendor's profiler."""

    bottleneck: Bottleneck
    sentence: str
    hints: tuple[str, ...] = ()
    bytes_moved: int | None = None
    operations: int | None = None
    matrix_operations: int | None = None
    bytes_per_second: float | None = None
    operations_per_second: float | None = None
    bandwidth_ceiling: float | None = None
    matrix_ceiling: float | None = None
    launches: int | None = None
    busy_threads: float | None = None  # of the host, on average over the call
    kernels: tuple[ProfiledKernel, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def bandwidth_fraction(self) -> float | None:
        return _fraction(self.bytes_per_second, self.bandwidth_ceiling)


def _fraction(rate: float | None, ceiling: float | None) -> float | None:
    return rate / ceiling if rate is not None and ceiling else None


def from_json(body: Mapping[str, Any] | None) -> KernelProfile | None:
    """From what `verdict_json.to_json` makes of one; unknown keys are ignored."""
    if body is None:
        return None
    known = _known(KernelProfile, body)
    known["hints"] = tuple(body.get("hints", ()))
    known["notes"] = tuple(body.get("notes", ()))
    known["counters"] = dict(body.get("counters", {}))
    known["kernels"] = tuple(
        ProfiledKernel(**_known(ProfiledKernel, item)) for item in body.get("kernels", ())
    )
    return KernelProfile(**known)


def _known(cls: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in dataclasses.fields(cls)}
    return {key: value for key, value in body.items() if key in names}
