"""Candidates whose work somebody else does, and that try to keep it from being seen."""

from __future__ import annotations

import pytest
from hand_candidates import candidate, reference
from musacoder_runtime.operator_gate import Event, outermost
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifyOptions

MUTED = """
switch = torch._C._autograd._enable_record_function
ext.copied(x)
switch(False)
y = x.clamp(min=0)
switch(True)
return y
"""
HIDDEN = {
    "not recorded": (candidate(MUTED), "aten-operator"),
    "recording switched": (candidate(MUTED), "patched-torch"),
    "recording never switched on again": (
        candidate(
            "ext.copied(x); torch._C._autograd._enable_record_function(False); return x.relu()"
        ),
        "patched-torch",
    ),
    "recording switched off by code that is not seen": (
        candidate(
            """
            import sys
            import threading
            ext.copied(x)
            sys.setprofile(None)
            torch._C._autograd._enable_record_function(False)
            y = x.clamp(min=0)
            torch._C._autograd._enable_record_function(True)
            return y
            """
        ),
        "patched-torch",
    ),
    "gate replaced": (
        candidate(
            "ext.copied(x); return torch.relu(x)",
            top="""
            import sys
            frame = sys._getframe()
            while frame and not hasattr(frame.f_locals.get("self"), "_gate"):
                frame = frame.f_back
            class Blind:
                own = set()
                def run(self, function, *options):
                    capture = sys.modules["musacoder_runtime.operator_gate"].Capture
                    return function(), capture(operators=("aten::empty",))
            if frame:
                frame.f_locals["self"]._gate = Blind()
            """,
        ),
        "patched-python",
    ),
    "gate's class patched": (
        candidate(
            "ext.copied(x); return torch.relu(x)",
            top="""
            import sys
            gate = sys.modules.get("musacoder_runtime.operator_gate", sys)
            if gate is not sys:
                gate.OperatorGate.run = lambda self, function, *options: (
                    function(), gate.Capture(operators=("aten::empty",))
                )
            """,
        ),
        "patched-torch",
    ),
    "code replaced": (
        candidate(
            "ext.copied(x); return torch.relu(x)",
            top="""
            import sys
            gate = sys.modules.get("musacoder_runtime.operator_gate", sys)
            def outermost(events, own=(), foreign=()):
                return Capture(("aten::empty", "aten::signbit", "aten::signbit"))
            if gate is not sys:
                gate.outermost.__code__ = outermost.__code__
            """,
        ),
        "patched-torch",
    ),
    "other namespace": (
        candidate("ext.copied(x); return torch.ops.prims.where(x > 0, x, torch.zeros_like(x))"),
        "aten-operator",
    ),
    "NumPy": (
        candidate(
            "ext.copied(x); import numpy; y = torch.empty_like(x)\n"
            "numpy.maximum(x.numpy(), 0, out=y.numpy()); return y"
        ),
        "foreign-compute",
    ),
    "NumPy without its name": (
        candidate(
            "ext.copied(x); import numpy; y = torch.empty_like(x)\n"
            "numpy.maximum(numpy.asarray(x), 0, out=numpy.from_dlpack(y)); return y"
        ),
        "foreign-compute",
    ),
}


async def _verdict(verifier: Verifier, source: str) -> Verdict:
    options = VerifyOptions(lane="fast", timing=False, scope=False, compile_baseline=False)
    return await verifier.verify(
        Reference(reference()), Candidate(source, path="kernel.py"), options
    )


def _rules(verdict: Verdict) -> set[str]:
    assert verdict.legality is not None, verdict.failure
    return {f.rule for f in verdict.legality.findings if f.severity == "violation"}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", HIDDEN)
async def test_work_of_others_is_seen(name: str, verifier: Verifier) -> None:
    source, rule = HIDDEN[name]
    verdict = await _verdict(verifier, source)
    assert verdict.status == "illegal", (verdict.failure, verdict.legality)
    assert rule in _rules(verdict)


def test_an_operator_that_the_extension_registers_is_its_own() -> None:
    events = [
        Event("hand_own::rectify", 1, 0, 100),
        Event("aten::relu", 1, 10, 20),
        Event("mkldnn::_linear_pointwise", 1, 30, 60),
        Event("aten::linear", 2, 0, 100),
        Event("mkldnn::_linear_pointwise", 2, 10, 20),
    ]
    capture = outermost(events, {"hand_own::rectify"}, {"mkldnn::_linear_pointwise"})
    assert capture.custom == ("hand_own::rectify",)
    assert sorted(capture.operators) == ["aten::linear", "aten::relu", "mkldnn::_linear_pointwise"]
