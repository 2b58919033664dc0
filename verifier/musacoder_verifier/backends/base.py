"""Backend: what a kernel is compiled for and run on, as the verifier's own process sees it.

Its counterpart in the user's interpreter is `musacoder_runtime.devices.<runtime_device>`. Nothing
above this package asks which Backend it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from musacoder_verifier.limits import DeviceAccess
from musacoder_verifier.toolchain import Toolkit
from musacoder_verifier.worker import WorkerInfo


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a device did while it was measured. `notes` are phrases about what disturbs figures;
    `figures` are numbers such as clocks; `unchecked` names what could not be seen."""

    notes: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()


class Watch(Protocol):
    """Looks at a device while it is measured."""

    def look(self) -> None:
        """One look, some tens of microseconds; call it between samples."""

    def conditions(self) -> Conditions:
        """What all looks together say."""


class Backend(Protocol):
    @property
    def name(self) -> str:
        """`cpu`, `cuda`, `musa` or `emulator`."""

    @property
    def label(self) -> str:
        """The device as users write it: `cpu`, `cuda:1`."""

    @property
    def runtime_device(self) -> str:
        """The module of `musacoder_runtime.devices` that drives it."""

    @property
    def host_flags(self) -> tuple[str, ...]:
        """Flags for host code, the same in both lanes; part of keys and Verdicts."""

    @property
    def device_flags(self) -> tuple[str, ...]:
        """Flags for device code; none where it takes no device sources."""

    def toolkit(self, site_folders: Sequence[str]) -> Toolkit | None:
        """The compiler of device sources, where one is installed; `site_folders` hold the packages
        of the user's interpreter."""

    def no_toolkit(self) -> str:
        """One sentence for a user whose device sources cannot be compiled, and why."""

    @property
    def narrow(self) -> float:
        """Timing may stop when half the interval of the ratio is this share of it: what the
        device's own noise lets a run of a second or two reach."""

    @property
    def compile_modes(self) -> tuple[str, ...]:
        """Modes of torch.compile whose best one is the second baseline."""

    def missing(self) -> str | None:
        """One sentence where nothing can be run on it here."""

    def unfit(self, info: WorkerInfo) -> str | None:
        """One sentence where the user's torch cannot drive it."""

    def device_name(self) -> str:
        """The device as people call it; figures of another device are other figures."""

    def versions(self) -> Mapping[str, str]:
        """What a Verdict depends on beside the device's name: driver, architecture, toolkit."""

    def lock_name(self) -> str:
        """What a measurement must hold alone, as a file name."""

    def environment(self) -> Mapping[str, str]:
        """Variables that the runtime worker of this device starts with."""

    def access(self) -> DeviceAccess:
        """What driving the device needs beyond a child's sandbox."""

    def memory_in_use(self) -> float | None:
        """The share of the device's memory that all processes together hold; None where it has
        none of its own, or the driver does not say."""

    def watch(self, own: Sequence[int]) -> Watch:
        """Watch the device, now idle, from here on; `own` are the processes that measure."""
