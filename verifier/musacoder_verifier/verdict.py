"""Verdict: what verification found. Facts are stored; `status` is computed from them by a policy.

Times are in milliseconds where a name ends in `_ms`, else in seconds. Lines and columns are
1-based, in the file of the Candidate (or, for a `reference_error`, in the user's file).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from musacoder_verifier.kernel_resources import KernelResources
from musacoder_verifier.profile.kernel_profile import KernelProfile

SCHEMA_VERSION = 1

Status = Literal[
    "ok",
    "compile_error",
    "runtime_error",
    "wrong_result",
    "illegal",
    "timeout",
    "reference_error",
    "infra_error",
]
StageName = Literal[
    "collect", "compile", "correctness", "legality", "timing", "profile", "baseline"
]
Severity = Literal["error", "warning", "note"]
Legal = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    file: str
    line: int
    column: int
    severity: Severity
    message: str
    # (file, line, column, message) of the notes that belong to it, "in instantiation of ..." etc.
    related: tuple[tuple[str, int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about legality. A `hint` alone never condemns; a `violation` does."""

    rule: str
    evidence: str
    line: int | None = None
    severity: Literal["violation", "hint"] = "violation"
    file: str | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why verification stopped: one sentence for a person, the whole text for a repair prompt."""

    status: Status
    stage: str  # a StageName, or "reference"
    message: str
    detail: str = ""  # traceback or compiler output, already condensed
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class StageReport:
    seconds: float
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompileReport:
    lane: Literal["fast", "stock", "native", "none"]
    seconds: float
    cached: bool = False
    flags: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    lane_reason: str | None = None  # why the stock lane was taken
    resources: tuple[KernelResources, ...] = ()  # of each kernel, where the compiler reports it


@dataclass(frozen=True, slots=True)
class LikeKernelBench:
    """What KernelBench's own comparison says: `torch.allclose` on its trial seeds.

    `passed` counts the trials that hold at each tolerance (atol = rtol), whichever decides:
    `tolerance`, None for KernelBench's own by dtype. Differences are of the trials that fail.
    """

    planned: int
    done: int  # fewer than planned after an exception or another shape
    passed: Mapping[str, int]
    tolerance: float | None = None
    max_difference: tuple[float, ...] = ()
    avg_difference: tuple[float, ...] = ()
    issue: str | None = None


@dataclass(frozen=True, slots=True)
class Correctness:
    passed: bool
    trials: int
    passed_trials: int
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)  # dtype -> atol = rtol
    near_miss: bool = False
    oracle: Literal["strong", "widened", "scaled", "weak"] = "strong"
    candidate_fp64_error: float | None = None
    reference_fp64_error: float | None = None
    deterministic: bool | None = None
    failed_check: str | None = None  # name of the first check that failed
    mode: Literal["train", "eval"] = "eval"
    scope: Mapping[str, str] = field(default_factory=dict)  # probe -> holds | refuses | wrong
    kernelbench: LikeKernelBench | None = None  # in the mode of that name


@dataclass(frozen=True, slots=True)
class Legality:
    verdict: Legal
    findings: tuple[Finding, ...] = ()
    operators: tuple[str, ...] = ()  # outermost aten operators seen in ModelNew.forward


@dataclass(frozen=True, slots=True)
class Timing:
    candidate_ms: float
    eager_ms: float
    compile_ms: float | None  # best torch.compile mode; None where it could not run
    speedup_eager: float
    speedup_compile: float | None
    ci95: tuple[float, float]  # of speedup_eager
    samples: int
    spread: Mapping[str, float] = field(default_factory=dict)  # relative IQR per side
    compile_mode: str | None = None
    ci95_compile: tuple[float, float] | None = None
    interleaved: bool = True
    threads: int | None = None
    outside_clock_ratio: float | None = None  # parent's go-to-done time over the child's own
    roofline: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    # Milliseconds of one call per side, over its samples: mean, std, min, max.
    statistics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Milliseconds of the host per call and side, until the call is handed over to the device.
    host_ms: Mapping[str, float] = field(default_factory=dict)
    # What the device did meanwhile: clocks in MHz, degrees.
    conditions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification found; `musacoder_verifier.verdict_json` converts it to JSON and back."""

    status: Status
    policy: str
    faster: bool
    stages: Mapping[str, StageReport]
    failure: Failure | None
    compile: CompileReport | None
    correctness: Correctness | None
    legality: Legality | None
    timing: Timing | None
    reward: float | None  # None: infra_error or reference_error carry none
    backend: str
    device: str
    workload: Any  # Workload, or None where the probe never got that far
    versions: Mapping[str, str]  # torch, python, compiler, verifier, driver
    key: str  # content key of (Reference, Workload, Candidate, Backend, device, versions)
    not_checked: tuple[str, ...]
    wall_seconds: float
    mode: str = "strict"  # or "kernelbench"
    profile: KernelProfile | None = None  # of a Candidate that was timed
    # Layer of the sandbox that the Candidate ran in -> "on", "off: why" or "unavailable: why".
    sandbox: Mapping[str, str] = field(default_factory=dict)
