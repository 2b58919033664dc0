"""Stage legality: findings from what was seen while ModelNew ran, and from what was compiled.

Verdicts come from run-time evidence and from the compiled objects; static hints only lend lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from musacoder_verifier.allow_list import allowed, plumbing, struct_listed
from musacoder_verifier.policy import UNCHECKED, legal
from musacoder_verifier.stages.correctness import Evidence
from musacoder_verifier.verdict import Correctness, Finding, Legality

# Share of a pause after forward that other threads may compute in before we say so.
_BACKGROUND = 0.25
# fp32 results this much worse than the Reference's own, and worse than fp32 rounding explains.
_PRECISION_FACTOR = 64.0
_PRECISION_ERROR = 2e-5


@dataclass(frozen=True, slots=True)
class Symbols:
    """What the compiled objects can call, as their symbol tables say."""

    operators: tuple[str, ...] = ()  # PyTorch operators
    vendor: tuple[str, ...] = ()  # functions of cuBLAS, cuDNN, MKL ...
    switches: tuple[str, ...] = ()  # functions that hide operators from the profiler


def judge(
    evidence: Evidence,
    hints: Sequence[Finding],
    symbols: Symbols,
    correctness: Correctness | None,
    *,
    policy: str,
    path: str,
    compiled: int,
) -> Legality:
    """All findings. `compiled` is the number of extensions."""
    findings = [
        *_operator_findings(evidence, hints, path),
        *_extension_findings(evidence, path, compiled),
        *_conduct_findings(evidence, correctness, path),
        *_symbol_findings(symbols, path),
    ]
    return Legality(
        verdict=legal(policy, findings),
        findings=(*findings, *hints),
        operators=tuple(sorted(evidence.operators)),
    )


def _operator_findings(evidence: Evidence, hints: Sequence[Finding], path: str) -> list[Finding]:
    found = []
    for name in sorted(evidence.operators):
        if allowed(name):
            continue
        line = _line_of(name, hints)
        if plumbing(name):
            evidence_text = f"{name} is not in the list of allowed operators, but computes nothing"
            found.append(Finding("plumbing-operator", evidence_text, line, file=path))
        else:
            evidence_text = f"ModelNew.forward runs {name}, which computes"
            found.append(Finding("aten-operator", evidence_text, line, file=path))
    if evidence.unprofiled is not None:
        found.append(Finding(UNCHECKED, f"operators: {evidence.unprofiled}", None, "hint", path))
    elif evidence.runs == 0:
        found.append(Finding(UNCHECKED, "operators: ModelNew never ran", None, "hint", path))
    return found


def _line_of(operator: str, hints: Sequence[Finding]) -> int | None:
    """The line of the static hint that most likely speaks of this operator."""
    name = operator.removeprefix("aten::").split(".")[0].strip("_")
    calls = [hint for hint in hints if hint.rule == "torch-compute"]
    for hint in calls:
        if name and name in hint.evidence.lower():
            return hint.line
    return calls[0].line if calls else None


def _extension_findings(evidence: Evidence, path: str, compiled: int) -> list[Finding]:
    if evidence.runs == 0:
        return []
    if compiled == 0:
        return [Finding("no-native-code", "the Candidate compiles no extension", 1, file=path)]
    if evidence.runs_without_calls == 0 or evidence.custom:
        return []
    if not evidence.witness_complete:
        text = "calls of the extension: it offers objects whose calls are not seen"
        return [Finding(UNCHECKED, text, None, "hint", path)]
    return [
        Finding(
            "extension-not-called",
            f"in {evidence.runs_without_calls} of {evidence.runs} runs ModelNew.forward calls no "
            "function of the compiled extension",
            file=path,
        )
    ]


def _conduct_findings(
    evidence: Evidence, correctness: Correctness | None, path: str
) -> list[Finding]:
    found = [
        Finding(rule, f"replaced or switched: {what}", file=path)
        for rule, what in sorted(evidence.changes)
    ]
    if evidence.threads_left:
        names = ", ".join(sorted(evidence.threads_left))
        found.append(Finding("thread-left", f"forward leaves threads running: {names}", file=path))
    if evidence.background > _BACKGROUND:
        text = "other threads still compute after forward has returned"
        found.append(Finding("work-after-return", text, file=path))
    for name in sorted(evidence.exported):
        text = f"forward hands tensors to another library through {name}"
        found.append(Finding("foreign-compute", text, file=path))
    if evidence.cached_result:
        found.append(Finding("cached-result", "forward returns an earlier result", file=path))
    if evidence.lazy_output is not None:
        text = f"forward returns a {evidence.lazy_output} instead of a plain tensor"
        found.append(Finding("lazy-output", text, file=path))
    if correctness is not None and correctness.passed and _less_precise(correctness):
        text = (
            f"its float64 error {correctness.candidate_fp64_error:.2g} is far above the "
            f"Reference's {correctness.reference_fp64_error:.2g}: lower precision inside?"
        )
        found.append(Finding("lower-precision", text, None, "hint", path))
    return found


def _less_precise(correctness: Correctness) -> bool:
    ours, theirs = correctness.candidate_fp64_error, correctness.reference_fp64_error
    if ours is None or theirs is None or "float32" not in correctness.tolerance:
        return False
    return ours > _PRECISION_ERROR and ours > _PRECISION_FACTOR * theirs


def _symbol_findings(symbols: Symbols, path: str) -> list[Finding]:
    found = []
    for name in sorted(set(symbols.operators)):
        # A stock object names the operator's struct: `empty_memory_format` for empty.memory_format.
        if allowed(name) or plumbing(name) or struct_listed(name):
            continue
        text = f"the extension can call {name}"
        found.append(Finding("aten-in-extension", text, file=path))
    for name in sorted(set(symbols.switches)):
        text = f"the extension can hide operators with at::{name}"
        found.append(Finding("hides-operators", text, file=path))
    for name in sorted(set(symbols.vendor)):
        found.append(Finding("vendor-library", f"the extension calls {name}", file=path))
    return found
