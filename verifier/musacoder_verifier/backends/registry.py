"""Backends by name."""

from __future__ import annotations

from collections.abc import Callable

from musacoder_verifier.backends.base import Backend
from musacoder_verifier.backends.cpu import CpuBackend

_BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": CpuBackend}
BACKENDS: tuple[str, ...] = tuple(_BACKENDS)


def backend(name: str) -> Backend:
    """ValueError, one sentence, where there is no such Backend."""
    if name not in _BACKENDS:
        known = ", ".join(_BACKENDS)
        raise ValueError(f"the backend {name} cannot be verified here; choose one of: {known}")
    return _BACKENDS[name]()
