"""The native form on a CUDA device: whole Verdicts, and how its functions behave there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compiled import load_in_process
from musacoder_inference.engines.base import Generated, GenerationRequest
from musacoder_inference.registry import engine
from musacoder_runtime.children.export import export
from musacoder_verifier.build_request import Artefact
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.stages.collect import collect
from musacoder_verifier.stages.compile import compile_requests
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifyOptions
from musacoder_verifier.worker import Worker
from native_candidates import CANDIDATE, REFERENCE

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="session")]

_MORE = """\
import torch
from musacoder_native import Function, Launch, load_native

kernels = load_native(
    name="more",
    source=r'''
#include <cuda_fp16.h>
extern "C" __global__ void fill(float* x, float by, long long n) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) x[i] = by;
}
extern "C" __global__ void slow_add(float* x, double by, int n, unsigned char twice) {
  const long long end = clock64() + 20000000;
  while (clock64() < end) {}
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] += static_cast<float>(twice ? 2 * by : by);
}
extern "C" __global__ void shared_sum(const __half* x, float* y, int n) {
  extern __shared__ float kept[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = __half2float(x[i]);
  __syncthreads();
  if (threadIdx.x == 0) {
    y[0] = 0.f;
    for (int i = 0; i < n; ++i) y[0] += kept[i];
  }
}
extern "C" __global__ void nowhere(float* x) { reinterpret_cast<float*>(8)[threadIdx.x] = x[0]; }
''',
    functions={
        "fill_": Function(
            args=["x: float32[*s]", "by: float"],
            launches=[Launch("fill", ["x", "by", "numel(x)"], "ceil_div(numel(x), 256)", 256)],
        ),
        "slow_add_": Function(
            args=["x: float32[n]", "by: float", "count: int", "twice: bool"],
            launches=[Launch("slow_add", ["x", "by", "min(n, count)", "twice"], 1, 64)],
        ),
        "shared_sum": Function(
            args=["x: float16[n]"], outputs=["y: float32[]"],
            launches=[Launch("shared_sum", ["x", "y", "n"], 1, 64, "4 * n")],
        ),
        "nowhere": Function(args=["x: float32[n]"], launches=[Launch("nowhere", ["x"], 1, 32)]),
        "too_many": Function(
            args=["x: float32[n]"], launches=[Launch("nowhere", ["x"], 1, (64, 64))],
        ),
    },
)

class ModelNew(torch.nn.Module):
    pass
"""


async def _verify(verifier: Verifier, source: str, shape: str, **options: Any) -> Verdict:
    chosen = {
        "backend": "cuda", "policy": "native-only", "timing": False, "scope": False,
        "profile": False, "compile_baseline": False, **options,
    }  # fmt: skip
    reference = Reference(REFERENCE.format(shape=shape))
    return await verifier.verify(reference, Candidate(source, path="k.py"), VerifyOptions(**chosen))


async def test_an_honest_candidate_is_ok(verifier: Verifier) -> None:
    verdict = await _verify(verifier, CANDIDATE, "1024, 4096", timing=True, scope=True)
    assert verdict.status == "ok", (verdict.failure, verdict.legality)
    assert verdict.compile is not None and verdict.compile.lane == "native"
    assert {item.symbol for item in verdict.compile.resources} == {"rectify", "row_sum"}
    assert verdict.timing is not None and verdict.timing.candidate_ms < 5.0
    print(
        f"native form: compile {verdict.compile.seconds:.3f} s, "
        f"{verdict.timing.candidate_ms:.4f} ms, host {verdict.timing.host_ms}"
    )


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("x[i] * by : 0.f", "x[i] : 0.f", "wrong_result"),
        ("return kernels.both(x, 2.0)", "return torch.relu(x) * 2.0, x.sum(dim=1)", "illegal"),
        ("block=256", "block=2048", "runtime_error"),
    ],
)
async def test_another_candidate_is_not(
    verifier: Verifier, old: str, new: str, status: str
) -> None:
    changed = CANDIDATE.replace(old, new)
    assert changed != CANDIDATE
    verdict = await _verify(verifier, changed, "64, 257")
    assert verdict.status == status, (verdict.failure, verdict.legality)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (96,)))", "[8, 33, 96]"),
        ("torch.softmax(torch.nn.functional.linear(x, y, x[0, :64]), -1)", "[128, 96], [64, 96]"),
        ("(x.argmax(1), x.cumsum(1), torch.cat([x, y]).amax(0))", "[40, 70], [3, 70]"),
        ("torch.nn.functional.max_pool2d(torch.tanh(x.half()), 2)", "[2, 3, 16, 18]"),
    ],
)
async def test_what_synth_writes_in_either_form_is_ok(
    verifier: Verifier, forward: str, inputs: str
) -> None:
    shapes = inputs.replace("], [", "],[").split(",[")
    made = ", ".join(
        f"torch.randn({shape if shape[0] == '[' else '[' + shape})" for shape in shapes
    )
    names = "x, y" if len(shapes) == 2 else "x"
    source = (
        "import torch\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {names}):\n        return {forward}\n\n"
        f"def get_inputs():\n    return [{made}]\n\ndef get_init_inputs():\n    return []\n"
    )
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    graph = export(namespace["Model"](), namespace["get_inputs"](), training=False)
    seconds = {}
    for form in ("load_inline", "native"):
        request = GenerationRequest(source, "cuda", graph=graph)
        events = [e async for e in engine("synth", {"form": form}).generate(request)]
        assert isinstance(events[-1], Generated), events[-1]
        options = VerifyOptions(
            backend="cuda", policy="native-only", timing=True, scope=False, profile=False,
            compile_baseline=False,
        )  # fmt: skip
        candidate = Candidate(events[-1].source, path="k.py")
        verdict = await verifier.verify(Reference(source), candidate, options)
        assert verdict.status == "ok", (form, verdict.failure, verdict.legality)
        assert verdict.compile is not None and verdict.timing is not None
        host = 1e3 * verdict.timing.host_ms["candidate"]
        seconds[form] = (verdict.compile.seconds, verdict.timing.candidate_ms, host)
    for form, (spent, device, host) in seconds.items():
        print(f"{form}: compile {spent:.3f} s, device {device:.4f} ms, host {host:.1f} us")


async def _more(worker: Worker, cache: Path) -> Artefact:
    candidate = Candidate(_MORE, "more.py")
    spec = {"source": REFERENCE.format(shape="4, 5"), "path": "reference.py"}
    collected = await collect(worker, candidate, spec, path="more.py", timeout=60.0)
    assert collected.failure is None, collected.failure
    outcome = await compile_requests(
        collected.requests, backend="cuda", worker_info=worker.info, cache_dir=cache,
        candidate=candidate, timeout=60.0,
    )  # fmt: skip
    assert outcome.failure is None, outcome.failure
    return outcome.artefacts[0]


async def test_functions_follow_their_description(worker: Worker, compile_cache: Path) -> None:
    found = await load_in_process(
        await _more(worker, compile_cache),
        """
def said(function, *arguments):
    try: return str(function(*arguments))
    except Exception as error: return f"{type(error).__name__}: {error}"
x = torch.zeros(3, 5, device="cuda")
none = m.fill_(x, 1.5)
empty = m.fill_(torch.zeros(0, 5, device="cuda"), 1.5)
filled = x.unique().tolist()
v = torch.zeros(100, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    m.slow_add_(v, 0.5, 70, True)
    before = torch.cuda.current_stream() == side and not side.query()
    kept = v.cpu().sum().item()
half = torch.ones(20000, dtype=torch.float16, device="cuda")
total = m.shared_sum(half)
print(json.dumps({
    "filled": filled, "none": none is None and empty is None,
    "asynchronous": before, "kept": kept,
    "total": [total.item(), list(total.shape), str(total.device)],
    "refused": [
        said(m.fill_, x.t(), 1.0), said(m.fill_, x.double(), 1.0),
        said(m.slow_add_, x, 0.5, 1, True),
        said(m.slow_add_, v, 0.5, -(1 << 40), True), said(m.too_many, v),
        said(m.shared_sum, half.repeat(100)),
    ],
    "usable": m.shared_sum(half).item(),
}))
""",
    )
    assert found["filled"] == [1.5] and found["none"]
    assert found["asynchronous"] and found["kept"] == 70.0
    assert found["total"] == [20000.0, [], "cuda:0"] and found["usable"] == 20000.0
    says = [
        "must be contiguous", "x is of Double, not of Float", "x has 2 dimensions, not 1",
        "does not fit the 4 bytes", "block 64 x 64 x 1", "bytes of shared memory",
    ]  # fmt: skip
    for text, part in zip(found["refused"], says, strict=True):
        assert part in text and "Error: " in text, text


async def test_an_illegal_access_is_named(worker: Worker, compile_cache: Path) -> None:
    found = await load_in_process(
        await _more(worker, compile_cache),
        """
x = torch.zeros(3, device="cuda")
m.nowhere(x)
try: torch.cuda.synchronize()
except Exception as error: first = str(error)
try: m.fill_(x, 1.0)
except Exception as error: second = str(error)
print(json.dumps([first, second]))
""",
    )
    assert all("illegal memory access" in text for text in found), found


async def test_a_call_costs_little_more_than_its_launch(
    worker: Worker, compile_cache: Path
) -> None:
    found = await load_in_process(
        await _more(worker, compile_cache),
        """
import time
x = torch.zeros(16, device="cuda")
times = []
for _ in range(30):
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(200): m.fill_(x, 1.0)
    times.append((time.perf_counter() - started) / 200)
print(json.dumps(min(times)))
""",
    )
    print(f"native form: one call with one launch takes {found * 1e6:.2f} us of the host")
    assert found < 50e-6
