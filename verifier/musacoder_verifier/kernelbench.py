"""A Verdict in KernelBench's words: the fields of its `KernelExecResult`.

Source: ScalingIntelligence/KernelBench, `src/kernelbench/eval.py` (the fields) and
`scripts/eval_from_generations.py` (the constants of published runs). Only JSON types, so that
`KernelExecResult(**result)` takes it. `metadata["musacoder"]` has what the schema has no place for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musacoder_verifier.settings import VerifyOptions
from musacoder_verifier.stages.kernelbench import TRIALS
from musacoder_verifier.verdict import Correctness, Timing, Verdict

POLICY = "kernelbench"
# Above this speed-up KernelBench flags a result, without failing it.
EXCESSIVE_SPEEDUP = 10.0
# Figures that KernelBench rounds.
_DIGITS = 3
_NOT_RUN = -1.0


def options(
    backend: str,
    *,
    tolerance: float | None = None,
    trials: int = TRIALS,
    device_inputs: bool = False,
    timing: bool = True,
    stage_timeout: float | None = None,
) -> VerifyOptions:
    """What reproduces KernelBench. The Reference must be one in training mode, as KernelBench never
    calls `eval()`. `tolerance` 1e-2 stands for its versions 0 and 0.1."""
    return VerifyOptions(
        backend=backend,
        policy=POLICY,
        mode="kernelbench",
        stage_timeout=stage_timeout,
        timing=timing,
        compile_baseline=False,
        scope=False,
        trials=trials,
        device_inputs=device_inputs,
        tolerance=tolerance,
    )


def result(verdict: Verdict) -> dict[str, Any] | None:
    """The fields of `KernelExecResult`; None, as KernelBench gives, where the machine is at fault
    and there is no result. Times are in milliseconds."""
    if verdict.status == "infra_error":
        return None
    timing = verdict.timing
    body: dict[str, Any] = {
        "compiled": verdict.status != "compile_error",
        "correctness": verdict.correctness is not None and verdict.status == "ok",
        "metadata": _metadata(verdict),
        "runtime": _NOT_RUN,
        "runtime_stats": {},
        "ref_runtime": _NOT_RUN,
        "ref_runtime_stats": {},
    }
    if timing is not None and body["correctness"]:
        for side, name in (("candidate", "runtime"), ("eager", "ref_runtime")):
            stats = _stats(timing, side, verdict.device, verdict.backend)
            body[name], body[f"{name}_stats"] = stats["mean"], stats
    return body


def _stats(timing: Timing, side: str, hardware: str, device: str) -> dict[str, Any]:
    median = timing.candidate_ms if side == "candidate" else timing.eager_ms
    figures: Mapping[str, float] = timing.statistics.get(side) or {"mean": median}
    rounded = {name: float(f"{value:.{_DIGITS}g}") for name, value in figures.items()}
    return {**rounded, "num_trials": timing.samples, "hardware": hardware, "device": device}


def _metadata(verdict: Verdict) -> dict[str, Any]:
    known: dict[str, Any] = {"hardware": verdict.device, "device": verdict.backend}
    failure = verdict.failure
    if verdict.status == "compile_error" and failure is not None:
        known["compilation_error_name"] = failure.stage
        known["compilation_error"] = _compiler_words(verdict) or failure.message
    elif verdict.status in ("runtime_error", "timeout", "reference_error") and failure is not None:
        known["runtime_error_name"] = verdict.status
        known["runtime_error"] = failure.message
        known["runtime_error_traceback"] = failure.detail
    if verdict.correctness is not None:
        known |= _trials(verdict.correctness)
    timing = verdict.timing
    if timing is not None and timing.speedup_eager > EXCESSIVE_SPEEDUP:
        known["excessive_speedup"] = True
    known["musacoder"] = {
        "status": verdict.status,
        "policy": verdict.policy,
        "mode": verdict.mode,
        "tf32": verdict.versions.get("tf32"),
        "verifier": verdict.versions.get("verifier"),
        "findings": [
            f"{finding.rule}: {finding.evidence}"
            for finding in (verdict.legality.findings if verdict.legality is not None else ())
        ],
    }
    return known


def _compiler_words(verdict: Verdict) -> str | None:
    messages = verdict.compile.diagnostics if verdict.compile is not None else ()
    return next((entry.message for entry in messages if entry.severity == "error"), None)


def _trials(correctness: Correctness) -> dict[str, Any]:
    likened = correctness.kernelbench
    known: dict[str, Any] = {}
    if likened is None:
        known["correctness_trials"] = f"({correctness.passed_trials} / {correctness.trials})"
        return known
    if likened.done == likened.planned:
        known["correctness_trials"] = f"({correctness.passed_trials} / {likened.planned})"
    if likened.max_difference:
        known["max_difference"] = [f"{value:.6f}" for value in likened.max_difference]
        known["avg_difference"] = [f"{value:.6f}" for value in likened.avg_difference]
    if likened.issue is not None:
        known["correctness_issue"] = likened.issue
        if likened.issue != "Output mismatch":
            known["correctness_issue_name"] = "correctness_issue"
    return known
