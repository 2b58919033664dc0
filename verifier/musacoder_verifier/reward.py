"""Reward: equation 2 of MooreEval (MusaCoder, arXiv 2606.04847, section 4.3).

s(c) = -1                                        does not extract, compile or run; cheats; q = 0
       -0.5 + 0.5 q                              0 < q < 1
       1 + lambda * min(max(nu - 1, 0), nu_max)  q = 1 and legal

q is the share of random tests passed, nu the speed-up against eager PyTorch. The paper does not
publish lambda and nu_max; they are settings here. Outcomes that are not the Candidate's doing
(infra_error, reference_error, legality that could not be established) carry no reward, so that a
trainer masks the sample.
"""

from __future__ import annotations

from dataclasses import dataclass

from musacoder_verifier.verdict import Correctness, Legal, Status


@dataclass(frozen=True, slots=True)
class RewardSettings:
    speed_weight: float = 0.5  # lambda
    speed_cap: float = 4.0  # nu_max


def reward(
    status: Status,
    correctness: Correctness | None,
    legal: Legal | None,
    speedup: float | None,
    settings: RewardSettings,
) -> float | None:
    """s(c), or None where the sample must be masked. `speedup` is None where it may not count."""
    if status in ("infra_error", "reference_error"):
        return None
    if status == "wrong_result" and correctness is not None and correctness.trials > 0:
        rate = correctness.passed_trials / correctness.trials
        return -0.5 + 0.5 * rate if 0.0 < rate < 1.0 else -1.0
    if status != "ok":
        return -1.0
    if legal == "unknown":
        return None
    gain = 0.0 if speedup is None else min(max(speedup - 1.0, 0.0), settings.speed_cap)
    return 1.0 + settings.speed_weight * gain
