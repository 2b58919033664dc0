"""What the device ran in one call of forward, as its profiler tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from musacoder_verifier.profile.kernel_profile import ProfiledKernel
from musacoder_verifier.stages.pair import Pair
from musacoder_verifier.stages.side import Deadline, number

_SEED = 7000021  # beyond those of the trials
_GEOMETRY = ("blocks", "threads", "shared_bytes", "registers")


@dataclass(frozen=True)
class DeviceWork:
    """What the device ran in one call of forward. `early`: kernels that did not wait for the call's
    stream. `unwatched`: why nothing is known."""

    kernels: tuple[ProfiledKernel, ...]
    early: tuple[str, ...]
    unwatched: str | None


async def watch(pair: Pair, deadline: Deadline) -> DeviceWork:
    """StageStop where the Candidate fails in it."""
    message = {"op": "device_work", "seed": pair.seed + _SEED}
    answer = await pair.candidate.ask(message, deadline, "being watched on the device")
    try:
        return DeviceWork(
            tuple(_kernel(*entry) for entry in answer["kernels"]),
            tuple(str(name) for name in answer["early"]),
            str(answer["unwatched"]) if answer["unwatched"] is not None else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise pair.candidate.nonsense(deadline, error) from error


def _kernel(name: Any, spent: Any, launches: Any, geometry: Any) -> ProfiledKernel:
    known: Any = {key: int(geometry[key]) for key in _GEOMETRY if key in geometry}
    return ProfiledKernel(str(name), int(launches), number(spent) * 1e-9, **known)
