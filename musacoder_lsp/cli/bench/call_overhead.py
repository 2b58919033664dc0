"""What one call of an extension costs before the kernel runs: fast lane against pybind11.

The same function, which takes two tensors and returns one, is compiled in both lanes and called in
one process of the user's interpreter, in turns.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path

from musacoder_verifier import tools
from musacoder_verifier.build_request import Artefact, BuildRequest, SourceText
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.stages.compile import compile_requests
from musacoder_verifier.worker import RUNTIME, WorkerInfo

_SOURCE = "at::Tensor second(at::Tensor x, at::Tensor y) { return y; }\n"
_SECONDS = 600.0
# The least of many short runs: what the machine's other work adds is no cost of a call.
_SCRIPT = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import torch
from musacoder_runtime import extension_loader
functions = [extension_loader.load(json.loads(text)).second for text in sys.argv[2:]]
x, y = torch.zeros(4), torch.ones(4)
least = [float("inf")] * len(functions)
for _ in range(60):
    for place, function in enumerate(functions):
        started = time.perf_counter_ns()
        for _ in range(5000):
            function(x, y)
        least[place] = min(least[place], (time.perf_counter_ns() - started) / 5000)
print(json.dumps(least))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class CallOverhead:
    """Nanoseconds of one call, the loop around it included on both sides."""

    fast_ns: float
    stock_ns: float


async def measure(info: WorkerInfo, cache_dir: Path) -> CallOverhead | str:
    """The overhead in both lanes, or one sentence that says why there is none."""
    artefacts: list[Artefact] = []
    for lane in ("fast", "stock"):
        # Two names: an interpreter keeps one extension module of a name.
        request = BuildRequest(
            f"overhead_{lane}_{uuid.uuid4().hex[:8]}",
            (SourceText("cpp", _SOURCE),),
            (("second", "second"),),
        )
        outcome = await compile_requests(
            [request], backend="cpu", worker_info=info, cache_dir=cache_dir,
            candidate=Candidate(""), timeout=_SECONDS,
            lane="fast" if lane == "fast" else "stock",
        )  # fmt: skip
        if outcome.failure is not None:
            return outcome.failure.message
        artefacts.extend(outcome.artefacts)
    described = [json.dumps(dataclasses.asdict(artefact)) for artefact in artefacts]
    result = await tools.run(
        [info.python, "-c", _SCRIPT, str(RUNTIME), *described],
        cwd=cache_dir, timeout=_SECONDS, niceness=0,
    )  # fmt: skip
    if result.returncode != 0:
        lines = result.output.strip().splitlines()
        return lines[-1] if lines else "the calls could not be timed"
    fast, stock = json.loads(result.output.strip().splitlines()[-1])
    return CallOverhead(fast, stock)


def text(found: CallOverhead | str) -> str:
    if isinstance(found, str):
        return f"call overhead not measured: {found}"
    return f"one call: {found.fast_ns:.0f} ns in the fast lane, {found.stock_ns:.0f} ns by pybind11"
