"""Backend: what a kernel is compiled for and run on, as the verifier's own process sees it.

Its counterpart in the user's interpreter is `musacoder_runtime.devices.<runtime_device>`. Nothing
above this package asks which Backend it has.
"""

from __future__ import annotations

from typing import Protocol


class Backend(Protocol):
    @property
    def name(self) -> str:
        """`cpu`, `cuda`, `musa` or `emulator`."""

    @property
    def runtime_device(self) -> str:
        """The module of `musacoder_runtime.devices` that drives it."""

    @property
    def host_flags(self) -> tuple[str, ...]:
        """Flags for host code, the same in both lanes; part of keys and Verdicts."""

    @property
    def device_flags(self) -> tuple[str, ...]:
        """Flags for device code."""

    def device_name(self) -> str:
        """The device as people call it; figures of another device are other figures."""

    def lock_name(self) -> str:
        """What a measurement must hold alone, as a file name."""
