"""Trials as KernelBench runs them: its seeds, inputs of the Workload alone, `torch.allclose`.

A trial that raises, or whose output has another shape, ends the trials; wrong values do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from musacoder_verifier.stages.side import number
from musacoder_verifier.verdict import LikeKernelBench

SEED = 42
TRIALS = 5
# Version 0 and 0.1 of KernelBench held everything to 1e-2; both are told, whatever decides.
TOLERANCES = (1e-2, 1e-4)


@dataclass
class Trials:
    """What the trials so far showed; `freeze` makes the report of them."""

    tolerance: float | None
    passed: dict[float, int] = field(default_factory=dict)
    max_difference: list[float] = field(default_factory=list)
    avg_difference: list[float] = field(default_factory=list)
    done: int = 0
    issue: str | None = None

    @property
    def tolerances(self) -> tuple[float, ...]:
        """Those that a trial is compared at."""
        wanted = {*TOLERANCES, *([self.tolerance] if self.tolerance is not None else [])}
        return tuple(sorted(wanted, reverse=True))

    def tolerance_of(self, judged: Mapping[str, Any]) -> dict[str, float]:
        """dtype -> the tolerance that decides: `tolerance`, or else KernelBench's own."""
        own: Mapping[str, float] = judged["by_dtype"]
        return {
            dtype: value if self.tolerance is None else self.tolerance
            for dtype, value in own.items()
        }

    def note(self, judged: Mapping[str, Any]) -> tuple[str, str] | None:
        """Count one trial. (check, detail) where it fails at the tolerance that decides."""
        self.done += 1
        passes: Sequence[bool] = judged["passes"]
        for tolerance, holds in zip(self.tolerances, passes, strict=True):
            self.passed[tolerance] = self.passed.get(tolerance, 0) + bool(holds)
        if judged["error"] is not None:
            self.issue = str(judged["error"])
            return "structure", self.issue
        if judged["shape"] is not None:
            self.issue = f"Output shape mismatch: {judged['shape']}"
            return "shape", self.issue
        decides = max(self.tolerance_of(judged).values(), default=TOLERANCES[-1])
        if dict(zip(self.tolerances, passes, strict=True))[decides]:
            return None
        worst = number(judged["max_difference"])
        self.max_difference.append(worst)
        self.avg_difference.append(number(judged["avg_difference"]))
        self.issue = "Output mismatch"
        return "values", f"values differ by up to {worst:.3g} (tolerance {decides:g})"

    def freeze(self, planned: int) -> LikeKernelBench:
        return LikeKernelBench(
            planned=planned,
            done=self.done,
            passed={f"{tolerance:g}": count for tolerance, count in self.passed.items()},
            tolerance=self.tolerance,
            max_difference=tuple(self.max_difference),
            avg_difference=tuple(self.avg_difference),
            issue=self.issue,
        )
