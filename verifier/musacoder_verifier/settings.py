"""Settings of a Verifier and options of one verification."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import platformdirs

from musacoder_verifier import measurement_lock
from musacoder_verifier.backends.cpu import usable_cores
from musacoder_verifier.reward import RewardSettings

Mode = Literal["strict", "kernelbench"]
Lane = Literal["auto", "fast", "stock"]


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """`python` is the user's interpreter, `backend` names the device that references are probed and
    exported with. Times are in seconds, sizes in bytes.

    `compile_slots` verifications compile at once (None: one for each core), `device_slots` are on
    the device at once (None: no limit); timing is one at a time per device in any case.
    """

    python: str = sys.executable
    backend: str = "cpu"
    cache_dir: Path = field(default_factory=lambda: platformdirs.user_cache_path("musacoder"))
    sandbox: bool = True
    strict_sandbox: bool = False  # run nothing where a layer of the sandbox is missing
    stage_timeout: float = 120.0
    threads: int | None = None  # None: all cores that this process may use
    memory_bytes: int | None = None
    output_file_bytes: int = 8 << 30  # largest file, memory files included, of a Candidate
    lock_folder: Path = field(default_factory=measurement_lock.default_folder)
    reward: RewardSettings = field(default_factory=RewardSettings)
    infra_retries: int = 2
    compile_slots: int | None = None
    device_slots: int | None = None

    def __post_init__(self) -> None:
        # Children stand in other folders, and load what lies here by its path.
        object.__setattr__(self, "cache_dir", Path(self.cache_dir).absolute())

    @property
    def thread_count(self) -> int:
        return self.threads if self.threads is not None else usable_cores()

    @property
    def slots_for_compiling(self) -> int:
        return self.compile_slots if self.compile_slots is not None else usable_cores()


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """`stage_timeout` None: the Verifier's. `compile_baseline`: compare with torch.compile, which
    costs tens of seconds once per Reference and may take `baseline_timeout`.

    Mode `kernelbench` reproduces KernelBench's trials (`stages.kernelbench`) with TF32 as torch
    leaves it; `trials` and `tolerance` (None: by dtype, as KernelBench) belong to it alone, and so
    does `device_inputs`: KernelBench makes inputs with the CPU's generator on one thread, which
    takes longer than all else where they are large; with it get_inputs runs with the device as
    torch's default one, which draws other values of the same distributions."""

    backend: str = "cpu"
    policy: str = "libraries-allowed"
    mode: Mode = "strict"
    stage_timeout: float | None = None
    timing: bool = True
    timing_budget: float = 2.0
    compile_baseline: bool = True
    baseline_timeout: float = 90.0
    scope: bool = True
    profile: bool = True  # what bounds a timed Candidate; seconds, once per Reference
    lane: Lane = "auto"
    seed: int = 42
    trials: int = 5
    tolerance: float | None = None
    device_inputs: bool = False

    @property
    def host_inputs(self) -> bool:
        """Inputs are made by the CPU's generator, whatever the device."""
        return self.mode == "kernelbench" and not self.device_inputs

    @property
    def tf32(self) -> str:
        """`off`, or `default`: as torch leaves it."""
        return "default" if self.mode == "kernelbench" else "off"
