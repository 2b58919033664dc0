"""Backends by name: `cpu`, `cuda`, or one device of several, `cuda:1`."""

from __future__ import annotations

from collections.abc import Callable

from musacoder_verifier.backends import cuda
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.backends.cpu import CpuBackend

_BACKENDS: dict[str, Callable[[int], Backend]] = {"cpu": lambda _: CpuBackend(), "cuda": cuda.cuda}
_COUNTS: dict[str, Callable[[], int]] = {"cpu": lambda: 1, "cuda": cuda.count}
BACKENDS: tuple[str, ...] = tuple(_BACKENDS)


def split(name: str) -> tuple[str, int]:
    """(family, index) of a name such as `cuda:1`. Raises ValueError, one sentence."""
    family, colon, number = name.partition(":")
    if family not in _BACKENDS:
        known = ", ".join(_BACKENDS)
        raise ValueError(f"the backend {name} cannot be verified here; choose one of: {known}")
    if colon and not number.isdecimal():
        raise ValueError(f"the backend {name} names no device; write {family}:0")
    if colon and family == "cpu":
        raise ValueError(f"there is one cpu; write cpu instead of {name}")
    return family, int(number or 0)


def backend(name: str) -> Backend:
    """ValueError, one sentence, where there is no such Backend; whether it can run here says its
    `missing`."""
    family, index = split(name)
    return _BACKENDS[family](index)


def devices(family: str) -> tuple[str, ...]:
    """The names of all devices of a family: one worker each may measure at the same time."""
    known, _ = split(family)
    count = _COUNTS[known]()
    return (known,) if known == "cpu" else tuple(f"{known}:{index}" for index in range(count))
