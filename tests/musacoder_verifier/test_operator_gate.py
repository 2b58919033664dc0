"""The gate's two witnesses, in a child of the runtime worker."""

from __future__ import annotations

import pytest
from musacoder_verifier.worker import Limits, Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHADOWED = """
import sys
import torch
from musacoder_runtime.operator_gate import OperatorGate

before = set(sys.modules)
_, capture = OperatorGate().run(lambda: torch.ones(4).relu().sum(), shadow=True)
channel.send({
    "operators": list(capture.operators),
    "reason": capture.reason,
    "muted": capture.muted,
    "imported": sorted(set(sys.modules) - before),
})
"""


async def test_the_second_witness_imports_nothing(worker: Worker) -> None:
    """torch wraps a dispatch mode so that its first call imports a compiler, which takes seconds of
    every verification."""
    limits = Limits(seconds=120.0)
    async with worker.child("worker_children.run_code", {"code": SHADOWED}, limits=limits) as child:
        answer = await child.receive()
    assert answer["reason"] is None
    assert answer["operators"] == ["aten::ones", "aten::relu", "aten::sum"]
    assert not answer["muted"]
    assert not [name for name in answer["imported"] if name.startswith("torch._dynamo")]
