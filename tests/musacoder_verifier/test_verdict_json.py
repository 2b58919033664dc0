"""Verdict to JSON and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from musacoder_verifier.profile.kernel_profile import KernelProfile, ProfiledKernel
from musacoder_verifier.verdict import (
    CompileReport,
    Correctness,
    Diagnostic,
    Failure,
    Finding,
    Legality,
    LikeKernelBench,
    StageReport,
    Timing,
    Verdict,
)
from musacoder_verifier.verdict_json import from_json, to_json
from musacoder_verifier.workload import InputSpec, Workload

TEXT = st.text(max_size=12)
LINE = st.none() | st.integers(1, 10_000)
FLOAT = st.floats(allow_nan=False, width=32)
POSITIVE = st.floats(0.0, 1e9)

diagnostics = st.builds(
    Diagnostic,
    TEXT,
    st.integers(1, 99),
    st.integers(1, 99),
    st.sampled_from(["error", "warning", "note"]),
    TEXT,
    st.tuples() | st.tuples(st.tuples(TEXT, st.integers(), st.integers(), TEXT)),
)
findings = st.builds(
    Finding, TEXT, TEXT, LINE, st.sampled_from(["violation", "hint"]), st.none() | TEXT, LINE
)
workloads = st.builds(
    Workload,
    st.just("get_inputs"),
    st.lists(
        st.builds(
            InputSpec,
            TEXT,
            TEXT,
            st.tuples(st.integers(0, 9)),
            st.tuples(st.integers(0, 9)),
            st.just("cpu"),
            st.none() | FLOAT,
            st.none() | FLOAT,
            st.none() | TEXT,
        ),
        max_size=2,
    ).map(tuple),
    st.booleans(),
)
timings = st.builds(
    Timing,
    POSITIVE,
    POSITIVE,
    st.none() | POSITIVE,
    POSITIVE,
    st.none() | POSITIVE,
    st.tuples(POSITIVE, POSITIVE),
    st.integers(5, 300),
    st.dictionaries(TEXT, POSITIVE, max_size=2),
    st.none() | TEXT,
    st.none() | st.tuples(POSITIVE, POSITIVE),
    statistics=st.dictionaries(TEXT, st.dictionaries(TEXT, POSITIVE, max_size=2), max_size=2),
    notes=st.lists(TEXT, max_size=2).map(tuple),
)
likened = st.builds(
    LikeKernelBench,
    st.integers(1, 9),
    st.integers(0, 9),
    st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
    st.none() | POSITIVE,
    st.lists(FLOAT, max_size=2).map(tuple),
)
correctnesses = st.builds(
    Correctness,
    st.booleans(),
    st.integers(0, 12),
    st.integers(0, 12),
    st.none() | FLOAT,
    st.none() | st.just(math.inf),
    st.dictionaries(TEXT, POSITIVE, max_size=2),
    scope=st.dictionaries(TEXT, st.just("holds"), max_size=2),
    kernelbench=st.none() | likened,
)
profiles = st.builds(
    KernelProfile,
    st.sampled_from(["memory", "launch"]),
    TEXT,
    st.lists(TEXT, max_size=2).map(tuple),
    st.none() | st.integers(0),
    bytes_per_second=st.none() | POSITIVE,
    kernels=st.lists(
        st.builds(ProfiledKernel, TEXT, st.none() | st.integers(1, 9), st.none() | POSITIVE),
        max_size=2,
    ).map(tuple),
    counters=st.dictionaries(TEXT, POSITIVE, max_size=2),
    notes=st.lists(TEXT, max_size=2).map(tuple),
)
verdicts = st.builds(
    Verdict,
    status=st.sampled_from(["ok", "illegal", "timeout"]),
    policy=TEXT,
    faster=st.booleans(),
    stages=st.dictionaries(
        TEXT,
        st.builds(StageReport, POSITIVE, st.dictionaries(st.just("trials"), st.integers())),
        max_size=2,
    ),
    failure=st.none() | st.builds(Failure, st.just("timeout"), TEXT, TEXT, TEXT),
    compile=st.none()
    | st.builds(
        CompileReport,
        st.just("fast"),
        POSITIVE,
        st.booleans(),
        st.lists(TEXT, max_size=2).map(tuple),
        st.lists(diagnostics, max_size=2).map(tuple),
    ),
    correctness=st.none() | correctnesses,
    legality=st.none()
    | st.builds(
        Legality,
        st.sampled_from(["pass", "fail", "unknown"]),
        st.lists(findings, max_size=2).map(tuple),
        st.lists(TEXT, max_size=2).map(tuple),
    ),
    timing=st.none() | timings,
    reward=st.none() | FLOAT,
    backend=TEXT,
    device=TEXT,
    workload=st.none() | workloads,
    versions=st.dictionaries(TEXT, TEXT, max_size=2),
    key=TEXT,
    not_checked=st.lists(TEXT, max_size=2).map(tuple),
    wall_seconds=POSITIVE,
    profile=st.none() | profiles,
)


@settings(max_examples=60, deadline=None)
@given(verdicts)
def test_json_is_plain_and_the_way_back_is_the_same_verdict(verdict: Verdict) -> None:
    text = json.dumps(to_json(verdict), allow_nan=False)
    assert from_json(json.loads(text)) == verdict


def _verdict(**changes: Any) -> Verdict:
    body: dict[str, Any] = {
        "status": "ok", "policy": "native-only", "faster": False, "stages": {}, "failure": None,
        "compile": None, "correctness": None, "legality": None, "timing": None, "reward": None,
        "backend": "cpu", "device": "d", "workload": None, "versions": {}, "key": "k",
        "not_checked": (), "wall_seconds": 0.0,
    }  # fmt: skip
    return Verdict(**{**body, **changes})


def test_design_keys_are_there() -> None:
    body = to_json(_verdict(stages={"collect": StageReport(0.5, {"extensions": 1})}))
    assert body["schema_version"] == 1
    assert body["stages"] == {"collect": {"seconds": 0.5, "extensions": 1}}
    assert {"status", "faster", "compile", "correctness", "legality", "timing", "reward", "device",
            "workload", "not_checked", "wall_seconds"} <= set(body)  # fmt: skip


def test_what_is_not_finite_survives() -> None:
    broken = Correctness(False, 1, 0, max_abs_error=math.nan)
    back = from_json(json.loads(json.dumps(to_json(_verdict(correctness=broken)))))
    assert back.correctness is not None
    assert back.correctness.max_abs_error is not None
    assert math.isnan(back.correctness.max_abs_error)


@pytest.mark.parametrize("body", [{}, {"schema_version": 2}, {"schema_version": 1, "status": "ok"}])
def test_another_schema_or_half_a_verdict_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        from_json(body)
