"""What a call does to its inputs and buffers is part of its result."""

from __future__ import annotations

import pytest
from hand_candidates import candidate, reference
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verifier import Verifier, VerifyOptions

pytestmark = pytest.mark.asyncio(loop_scope="session")
CHANGING = reference("y = torch.relu(x); x.zero_(); return y")
COUNTING = """\
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(257))
    def forward(self, x):
        self.mean.copy_(0.9 * self.mean + 0.1 * x.mean(0))
        return torch.relu(x)
def get_inputs(): return [torch.randn(64, 257)]
"""
BUFFER = "self.register_buffer('mean', torch.zeros(257))"
CASES = {
    "same change": (CHANGING, candidate("return ext.in_place(x)"), False, None),
    "buffer kept": (COUNTING, candidate("return ext.rectify(x)", init=BUFFER), True, "effects"),
    "same buffer": (
        COUNTING,
        candidate(
            "self.mean.copy_(0.9 * self.mean + 0.1 * x.mean(0)); return ext.rectify(x)",
            init=BUFFER,
        ),
        True,
        None,
    ),
    "evaluated": (
        COUNTING.replace("self.mean.copy_(0.9 * self.mean + 0.1 * x.mean(0))", "pass"),
        candidate("return ext.rectify(x)", init=BUFFER), False, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_effects_are_judged_like_outputs(name: str, verifier: Verifier) -> None:
    source, kernel, training, check = CASES[name]
    options = VerifyOptions(
        lane="fast", timing=False, scope=False, compile_baseline=False, policy="kernelbench"
    )
    verdict = await verifier.verify(
        Reference(source, training=training), Candidate(kernel, path="kernel.py"), options
    )
    assert verdict.correctness is not None, verdict.failure
    assert verdict.correctness.failed_check == check, verdict.failure
