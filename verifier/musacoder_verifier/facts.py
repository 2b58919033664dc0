"""What one verification has found out so far, and what it tells on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from musacoder_verifier.profile.kernel_profile import KernelProfile
from musacoder_verifier.verdict import (
    CompileReport,
    Correctness,
    Failure,
    Legality,
    StageReport,
    Timing,
)

# What no stage of this version looks at; a Verdict says so instead of keeping silent.
ALWAYS_UNCHECKED = ("backward pass", "several devices", "other devices")


@dataclass(frozen=True, slots=True)
class StageEvent:
    """`state`: `started`, `ended`, or `waiting` (somebody else measures on the device), after which
    `started` comes again. `detail` of a started `baseline` holds the `speedup_eager` found."""

    stage: str
    state: str
    seconds: float = 0.0
    detail: Mapping[str, Any] = field(default_factory=dict)


OnStage = Callable[[StageEvent], None]


@dataclass
class Facts:
    """What is known so far; a Verdict is made of them whatever happened."""

    stages: dict[str, StageReport] = field(default_factory=dict)
    failure: Failure | None = None
    compile: CompileReport | None = None
    correctness: Correctness | None = None
    legality: Legality | None = None
    timing: Timing | None = None
    profile: KernelProfile | None = None
    workload: Any = None
    not_checked: list[str] = field(default_factory=lambda: list(ALWAYS_UNCHECKED))
    versions: dict[str, str] = field(default_factory=dict)
    sandbox: Mapping[str, str] = field(default_factory=dict)
