"""Misbehaviour in random order between honest kernels: every honest Verdict stays what it was.

`MUSACODER_FAULT_REPEATS` is how often the whole table is gone through (0, the default: some lines
of it, once), `MUSACODER_FAULT_BACKEND` on what (cpu).
"""

from __future__ import annotations

import os
import random
import time

import pytest
from misbehaviour import FAULTS, Fault, candidate, honest, reference
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifyOptions

REPEATS = int(os.environ.get("MUSACODER_FAULT_REPEATS", "0"))
BACKEND = os.environ.get("MUSACODER_FAULT_BACKEND", "cpu")
_A_FEW = ("exits well", "illegal access", "writes into its pipes")
_HANG_SECONDS = 3.0


async def _verify(verifier: Verifier, backend: str, source: str, timeout: float) -> Verdict:
    shape = "64, 257" if backend == "cpu" else "2048, 1031"
    options = VerifyOptions(
        backend=backend, policy="native-only", stage_timeout=timeout, timing=False, scope=False,
        profile=False, compile_baseline=False,
    )  # fmt: skip
    return await verifier.verify(
        Reference(reference(shape)), Candidate(source, path="k.py"), options
    )


async def _go_through(verifier: Verifier, backend: str, faults: list[Fault], seed: int) -> None:
    order = random.Random(seed)
    order.shuffle(faults)
    slowest = 0.0
    for fault in faults:
        limit = _HANG_SECONDS if fault.hangs else 300.0
        verdict = await _verify(verifier, backend, candidate(backend, fault.forward), limit)
        assert verdict.status in fault.statuses, (fault.name, seed, verdict.failure, verdict)
        started = time.monotonic()
        unchanged = await _verify(verifier, backend, honest(backend), 300.0)
        slowest = max(slowest, time.monotonic() - started)
        assert unchanged.status == "ok", (fault.name, seed, unchanged.failure, unchanged.legality)
        assert unchanged.correctness is not None
        assert unchanged.correctness.passed_trials == unchanged.correctness.trials
    print(f"{backend}: {len(faults)} faults, slowest honest Verdict after one {slowest:.2f} s")


@pytest.mark.asyncio(loop_scope="session")
async def test_an_honest_verdict_does_not_depend_on_what_came_before(verifier: Verifier) -> None:
    first = await _verify(verifier, BACKEND, honest(BACKEND), 300.0)
    assert first.status == "ok", (first.failure, first.legality)
    if not REPEATS:
        await _go_through(verifier, BACKEND, [f for f in FAULTS if f.name in _A_FEW], 1)
    for repeat in range(REPEATS):
        await _go_through(verifier, BACKEND, list(FAULTS), repeat)


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
async def test_an_honest_verdict_on_a_gpu_does_not_depend_on_what_came_before(
    verifier: Verifier,
) -> None:
    first = await _verify(verifier, "cuda", honest("cuda"), 300.0)
    assert first.status == "ok", (first.failure, first.legality)
    for repeat in range(max(1, REPEATS)):
        await _go_through(verifier, "cuda", list(FAULTS), repeat)


def test_the_table_has_twenty_kinds() -> None:
    assert len({fault.name for fault in FAULTS}) == 20
