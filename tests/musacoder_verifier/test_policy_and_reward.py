"""Which facts condemn, when a Candidate counts as faster, and what it is worth."""

from __future__ import annotations

import dataclasses

import pytest
from musacoder_verifier.policy import (
    OTHERS_CODE,
    TAMPERING,
    accuses,
    condemns,
    faster,
    legal,
    may_show_speedup,
    restate,
    severity,
    status,
)
from musacoder_verifier.reward import RewardSettings, reward
from musacoder_verifier.verdict import Correctness, Failure, Finding, Legality, Timing, Verdict

RIGHT = Correctness(passed=True, trials=12, passed_trials=12)
WRONG = Correctness(passed=False, trials=12, passed_trials=9)
CLEAN = Legality("pass")
UNSURE = Legality("unknown", (Finding("unchecked", "no profiler", severity="hint"),))


def _breaks(rule: str) -> Legality:
    return Legality("fail", (Finding(rule, "seen"),))


def _timing(low: float, high: float = 9.0) -> Timing:
    return Timing(1.0, 2.0, None, 2.0, None, (low, high), 20)


@pytest.mark.parametrize(
    ("policy", "rule", "condemned", "accused"),
    [
        ("native-only", "aten-operator", True, False),
        ("native-only", "vendor-library", True, False),
        ("libraries-allowed", "vendor-library", False, False),
        ("native-only", "extension-not-called", True, True),
        ("kernelbench", "extension-not-called", False, False),
        ("kernelbench", "cached-result", True, True),
    ],
)
def test_who_lets_others_code_work_is_not_called_a_cheat(
    policy: str, rule: str, condemned: bool, accused: bool
) -> None:
    finding = Finding(rule, "seen")
    assert (condemns(policy, finding), accuses(policy, finding)) == (condemned, accused)
    assert not accuses(policy, dataclasses.replace(finding, severity="hint"))
    assert not OTHERS_CODE & TAMPERING


@pytest.mark.parametrize(
    ("policy", "rule", "verdict"),
    [
        ("native-only", "vendor-library", "fail"),
        ("libraries-allowed", "vendor-library", "pass"),
        ("native-only", "plumbing-operator", "fail"),
        ("libraries-allowed", "plumbing-operator", "pass"),
        ("libraries-allowed", "aten-operator", "fail"),
        ("kernelbench", "aten-operator", "pass"),
        ("kernelbench", "clock", "fail"),
        ("kernelbench", "patched-torch", "fail"),
    ],
)
def test_policies_differ_only_in_what_they_excuse(policy: str, rule: str, verdict: str) -> None:
    assert legal(policy, _breaks(rule).findings) == verdict


def test_what_a_policy_excuses_is_no_violation_in_words() -> None:
    library = Finding("vendor-library", "the extension calls cublasSgemm")
    assert severity("libraries-allowed", library) == "note"
    assert severity("native-only", library) == "violation"


def test_a_hint_never_condemns() -> None:
    hint = Finding("aten-operator", "forward calls torch.relu", 3, "hint")
    assert legal("native-only", [hint]) == "pass"


def test_status_names_the_first_stage_that_failed_and_puts_a_cheat_before_a_wrong_result() -> None:
    failure = Failure("wrong_result", "correctness", "values differ")
    assert status("native-only", failure, WRONG, CLEAN) == "wrong_result"
    assert status("native-only", failure, WRONG, _breaks("aten-operator")) == "illegal"
    broken = Failure("compile_error", "compile", "no")
    assert status("native-only", broken, None, None) == "compile_error"


@pytest.mark.parametrize("fault", ["infra_error", "reference_error"])
def test_what_is_not_the_candidates_fault_is_never_called_illegal(fault: str) -> None:
    failure = Failure(fault, "correctness", "out of disk")  # type: ignore[arg-type]
    assert status("native-only", failure, RIGHT, _breaks("aten-operator")) == fault


def test_faster_is_the_lower_end_of_the_interval() -> None:
    assert faster("native-only", "ok", RIGHT, CLEAN, _timing(1.01))
    assert not faster("native-only", "ok", RIGHT, CLEAN, _timing(0.99))
    assert not faster("native-only", "ok", RIGHT, CLEAN, None)


def test_no_speedup_where_legality_is_unknown_or_the_oracle_weak() -> None:
    weak = dataclasses.replace(RIGHT, oracle="weak")
    assert not faster("native-only", "ok", RIGHT, UNSURE, _timing(2.0))
    assert not may_show_speedup("native-only", "ok", weak, CLEAN)
    assert not may_show_speedup("native-only", "ok", RIGHT, None)


def test_reward_is_equation_two() -> None:
    settings = RewardSettings(speed_weight=0.5, speed_cap=4.0)
    assert reward("compile_error", None, None, None, settings) == -1.0
    assert reward("illegal", RIGHT, "fail", 3.0, settings) == -1.0
    assert reward("wrong_result", WRONG, "pass", None, settings) == -0.5 + 0.5 * 0.75
    none_right = dataclasses.replace(WRONG, passed_trials=0)
    assert reward("wrong_result", none_right, "pass", None, settings) == -1.0
    assert reward("ok", RIGHT, "pass", None, settings) == 1.0
    assert reward("ok", RIGHT, "pass", 0.5, settings) == 1.0
    assert reward("ok", RIGHT, "pass", 3.0, settings) == 2.0
    assert reward("ok", RIGHT, "pass", 100.0, settings) == 3.0


@pytest.mark.parametrize("masked", ["infra_error", "reference_error"])
def test_faults_of_others_carry_no_reward(masked: str) -> None:
    assert reward(masked, None, None, None, RewardSettings()) is None  # type: ignore[arg-type]
    assert reward("ok", RIGHT, "unknown", None, RewardSettings()) is None


def test_restating_under_another_policy_uses_the_same_facts() -> None:
    verdict = Verdict(
        "illegal", "native-only", False, {}, None, None, RIGHT, _breaks("vendor-library"),
        _timing(1.5), -1.0, "cpu", "d", None, {}, "k", (), 1.0,
    )  # fmt: skip
    lenient = restate(verdict, "libraries-allowed")
    assert (lenient.status, lenient.faster, lenient.reward) == ("ok", True, 1.5)
    assert restate(lenient, "native-only").status == "illegal"
