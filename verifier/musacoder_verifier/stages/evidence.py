"""What trials showed: `Evidence` about legality, `Figures` about correctness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from musacoder_verifier.stages.side import number
from musacoder_verifier.verdict import Correctness


@dataclass
class Evidence:
    """What the candidate child saw about legality; merged over all runs."""

    operators: set[str] = field(default_factory=set)
    custom: set[str] = field(default_factory=set)
    unprofiled: str | None = None
    runs: int = 0
    runs_without_calls: int = 0
    witness_complete: bool = True
    changes: set[tuple[str, str]] = field(default_factory=set)
    threads_left: set[str] = field(default_factory=set)
    background: float = 0.0  # share of a pause after forward that other threads computed in
    cached_result: bool = False
    lazy_output: str | None = None
    exported: set[str] = field(default_factory=set)  # ways out of torch for tensors' memory
    extensions: int = 0
    audited: set[tuple[str, str]] = field(default_factory=set)  # (rule, what the interpreter saw)
    libraries: set[str] = field(default_factory=set)  # mapped since the Candidate was imported
    watchable: bool = False  # whether the device can tell which kernels it runs

    def note_changes(self, changes: Any) -> None:
        self.changes |= {(str(rule), str(what)) for rule, what in changes}

    def note_audited(self, audited: Any) -> None:
        self.audited |= {(str(rule), str(what)) for rule, what in audited}

    def note(self, answer: Mapping[str, Any]) -> None:
        """What came along with one run. KeyError, TypeError or ValueError where it is nonsense."""
        self.runs += 1
        self.operators |= {str(name) for name in answer["operators"]}
        self.custom |= {str(name) for name in answer["custom"]}
        if answer["unprofiled"] is not None:
            self.unprofiled = str(answer["unprofiled"])
        self.runs_without_calls += int(answer["calls"]) == 0
        self.witness_complete &= bool(answer["witness_complete"])
        self.note_changes(answer["changes"])
        self.exported |= {str(name) for name in answer["exported"]}
        self.note_audited(answer["audited"])
        self.libraries |= {str(path) for path in answer["libraries"]}
        self.threads_left |= {str(name) for name in answer["threads_left"]}
        self.background = max(self.background, number(answer["background"]))
        for leaf in answer["outputs"]["leaves"]:
            if leaf["kind"] == "unsupported":
                self.lazy_output = str(leaf["type"])


@dataclass
class Figures:
    """Sums over trials; `freeze` makes the Correctness of them."""

    trials: int = 0
    passed: int = 0
    own_scaled: bool = True  # all own trials pass under the scaled tolerance too
    failed_check: str | None = None
    detail: str = ""
    max_abs: float = 0.0
    max_rel: float = 0.0
    candidate_error: float | None = None
    reference_error: float | None = None
    near: int = 0  # failed trials that are near misses
    deterministic: bool | None = None
    tolerance: dict[str, float] = field(default_factory=dict)

    def fail(self, check: str, detail: str) -> None:
        if self.failed_check is None:
            self.failed_check, self.detail = check, detail

    def count(
        self,
        judged: Mapping[str, Any],
        problem: tuple[str, str] | None,
        *,
        own: bool,
        check: str | None,
        where: str,
    ) -> None:
        """One trial. `problem` is (check, detail) of what failed; `check` renames wrong values;
        `own`: on the Workload's own inputs, else `where` says on which."""
        self.trials += 1
        if problem is None:
            self.passed += 1
        else:
            name = check if check is not None and problem[0] == "values" else problem[0]
            self.fail(name, where + problem[1])
            self.near += problem[0] == "values" and bool(judged.get("near_miss"))
        if own:
            self.own_scaled &= bool(judged["scaled_passes"])
            self.candidate_error = _larger(self.candidate_error, judged.get("candidate_error"))
            self.reference_error = _larger(self.reference_error, judged.get("reference_error"))
        if "max_abs_error" in judged:
            self.max_abs = max(self.max_abs, number(judged["max_abs_error"]))
            self.max_rel = max(self.max_rel, number(judged["max_rel_error"]))
            self.tolerance.update(judged["tolerance"])

    def freeze(self, oracle: str, training: bool) -> Correctness:
        passed_trials = self.passed
        passed = passed_trials == self.trials and self.trials > 0
        if passed and oracle == "scaled" and not self.own_scaled:
            self.fail("values", "within the plain tolerance, but not within one scaled to the RMS")
            passed, passed_trials = False, 0
        failed = self.trials - self.passed
        return Correctness(
            passed=passed,
            trials=self.trials,
            passed_trials=passed_trials,
            max_abs_error=self.max_abs,
            max_rel_error=self.max_rel,
            tolerance=dict(self.tolerance),
            near_miss=failed > 0 and failed == self.near,
            oracle=oracle if oracle in ("widened", "scaled", "weak") else "strong",  # type: ignore[arg-type]
            candidate_fp64_error=self.candidate_error,
            reference_fp64_error=self.reference_error,
            deterministic=self.deterministic,
            failed_check=self.failed_check,
            mode="train" if training else "eval",
        )


def _larger(known: float | None, value: Any) -> float | None:
    return known if value is None else max(known or 0.0, number(value))
