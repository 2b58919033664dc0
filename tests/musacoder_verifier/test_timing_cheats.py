"""Candidates that are right when they expect to be looked at, and cheap when they do not."""

from __future__ import annotations

import pytest
from hand_candidates import candidate, reference
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verifier import Verifier, VerifyOptions

pytestmark = pytest.mark.asyncio(loop_scope="session")
COUNTED = "self.n = 0"
# In the order of severity: work left out of most calls, of a few, of the calls of one place.
SKIPPED = {
    "all but one of many": "self.n % 50",
    "one of eight": "self.n % 8 == 0",
    "bursts": "self.n // 7 % 2",
}
LATE = """
import sys
frame, real = sys._getframe(), None
while frame is not None and frame.f_code.co_name != "sample":
    frame = frame.f_back
y = torch.empty_like(x)
if frame is None:
    return ext.rectify(x)
self.late.append((x, y))
runner = frame.f_locals["self"]
if not isinstance(runner.device, Late):
    runner.device = Late(runner.device, self.late)
return y
"""
LATE_DEVICE = """
class Late:
    def __init__(self, device, late):
        self.device, self.late = device, late
    def __getattr__(self, name):
        return getattr(self.device, name)
    def parallel(self, on):
        self.device.parallel(on)
        if not on:
            while self.late:
                x, y = self.late.pop()
                y.copy_(ext.rectify(x))
"""


async def _timed(verifier: Verifier, source: str, reference_source: str) -> tuple[str, set[str]]:
    options = VerifyOptions(
        lane="fast", scope=False, compile_baseline=False, timing_budget=0.3, policy="kernelbench"
    )
    verdict = await verifier.verify(
        Reference(reference_source), Candidate(source, path="kernel.py"), options
    )
    findings = verdict.legality.findings if verdict.legality is not None else ()
    return verdict.status, {finding.rule for finding in findings}


@pytest.mark.parametrize("name", SKIPPED)
async def test_a_call_that_is_not_expected_to_be_looked_at_is(
    name: str, verifier: Verifier
) -> None:
    forward = f"""
    self.n += 1
    if self.n > 60 and {SKIPPED[name]}:
        return ext.copied(x)
    return ext.rectify(x)
    """
    status, _ = await _timed(verifier, candidate(forward, init=COUNTED), reference())
    assert status == "wrong_result"


async def test_the_result_of_another_call_of_the_sample_is_no_result(verifier: Verifier) -> None:
    """A sum over the inputs does not change when they are only moved."""
    forward = """
    self.n += 1
    if self.n <= 60 or self.n % 2:
        self.kept = ext.summed(x)
    return self.kept.clone()
    """
    source = candidate(forward, init="self.n, self.kept = 0, None")
    summed = reference("return x.abs().sum()")
    status, _ = await _timed(verifier, source, summed)
    assert status == "wrong_result"


async def test_outputs_are_computed_while_a_clock_runs(verifier: Verifier) -> None:
    """Work that is put off until the inside clock has stopped shows in the outside one."""
    source = candidate(LATE, init="self.late = []", top=LATE_DEVICE)
    status, rules = await _timed(
        verifier, source, reference("return torch.relu(x)", "torch.randn(64, 20001)")
    )
    assert status == "illegal" and rules & {"clock", "patched-python", "patched-torch"}, rules
