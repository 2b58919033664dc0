"""Named policies: which facts of a Verdict condemn a Candidate, and when it counts as faster.

Facts are stored once; the same facts can be judged again by another policy (`restate`).

- `native-only` (reward): nothing but the Candidate's own code may do the work.
- `libraries-allowed` (editor): vendor libraries inside the extension and operators that only
  arrange memory are fine; operators that compute are not.
- `kernelbench`: KernelBench's own view, which polices nothing but tampering with the measurement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from musacoder_verifier.reward import RewardSettings, reward
from musacoder_verifier.verdict import (
    Correctness,
    Failure,
    Finding,
    Legal,
    Legality,
    Status,
    Timing,
    Verdict,
)

# A finding of this rule says that a check could not run; it makes legality unknown.
UNCHECKED = "unchecked"

# Rules about falsified measurement: they condemn whatever the policy.
TAMPERING = frozenset(
    {
        "patched-torch",
        "patched-python",
        "clock",
        "roofline",
        "cached-result",
        "work-after-return",
        "hides-operators",
        "rewrites-code",
        "searches-process",
        "persisting-cache",
        "other-stream",
    }
)

# Rules about whose code does the work. Whoever calls an operator or a library does so in the open:
# a policy may rule it out, but it is no deceit.
OTHERS_CODE = frozenset(
    {
        "aten-operator",
        "plumbing-operator",
        "aten-in-extension",
        "vendor-library",
        "framework-kernel",
        "foreign-compute",
        "no-native-code",
    }
)

_EXCUSED: dict[str, frozenset[str] | None] = {
    "native-only": frozenset(),
    "libraries-allowed": frozenset(
        # Operators that the extension could call but did not: the run-time gate saw every run.
        {"vendor-library", "plumbing-operator", "aten-in-extension"}
    ),
    "kernelbench": None,  # everything but TAMPERING
}
POLICIES: tuple[str, ...] = tuple(_EXCUSED)


def condemns(policy: str, finding: Finding) -> bool:
    """Whether this finding makes a Candidate illegal under `policy`."""
    if finding.severity != "violation":
        return False
    excused = _EXCUSED[policy]
    if excused is None:
        return finding.rule in TAMPERING
    return finding.rule not in excused


def accuses(policy: str, finding: Finding) -> bool:
    """Whether this finding condemns as a cheat, and not for whose code does the work."""
    return condemns(policy, finding) and finding.rule not in OTHERS_CODE


def severity(policy: str, finding: Finding) -> Literal["violation", "note", "hint"]:
    """What this finding is called where `policy` judges: a violation only where it condemns, a note
    where another policy would condemn."""
    if condemns(policy, finding):
        return "violation"
    return "note" if finding.severity == "violation" else "hint"


def legal(policy: str, findings: Sequence[Finding]) -> Legal:
    """`fail` if a finding condemns, else `unknown` if a check could not run, else `pass`."""
    if any(condemns(policy, finding) for finding in findings):
        return "fail"
    if any(finding.rule == UNCHECKED for finding in findings):
        return "unknown"
    return "pass"


def status(
    policy: str,
    failure: Failure | None,
    correctness: Correctness | None,
    legality: Legality | None,
) -> Status:
    """The status that these facts have under `policy`.

    The order is that of the stages: a Candidate that does not compile is never called wrong. A
    cheat that also gives a wrong result is called illegal, for that is what must be repaired.
    """
    if failure is not None and failure.status in ("infra_error", "reference_error"):
        return failure.status
    if legality is not None and legal(policy, legality.findings) == "fail":
        return "illegal"
    if failure is not None:
        return failure.status
    if correctness is None:
        return "infra_error"
    return "ok" if correctness.passed else "wrong_result"


def may_show_speedup(
    policy: str, state: Status, correctness: Correctness | None, legality: Legality | None
) -> bool:
    """Whether a speed-up may be shown at all: correct against a strong oracle, and legal."""
    return (
        state == "ok"
        and correctness is not None
        and correctness.oracle != "weak"
        and legality is not None
        and legal(policy, legality.findings) == "pass"
    )


def faster(
    policy: str,
    state: Status,
    correctness: Correctness | None,
    legality: Legality | None,
    timing: Timing | None,
) -> bool:
    """Whether the lower end of the 95 % interval of the speed-up against eager is above 1."""
    return (
        timing is not None
        and timing.ci95[0] > 1.0
        and may_show_speedup(policy, state, correctness, legality)
    )


def restate(verdict: Verdict, policy: str, settings: RewardSettings | None = None) -> Verdict:
    """The same facts under another policy."""
    legality = verdict.legality
    if legality is not None:
        legality = dataclasses.replace(legality, verdict=legal(policy, legality.findings))
    state = status(policy, verdict.failure, verdict.correctness, legality)
    shown = may_show_speedup(policy, state, verdict.correctness, legality)
    return dataclasses.replace(
        verdict,
        policy=policy,
        legality=legality,
        status=state,
        faster=faster(policy, state, verdict.correctness, legality, verdict.timing),
        reward=reward(
            state,
            verdict.correctness,
            legality.verdict if legality is not None else None,
            verdict.timing.speedup_eager if verdict.timing is not None and shown else None,
            settings or RewardSettings(),
        ),
    )
