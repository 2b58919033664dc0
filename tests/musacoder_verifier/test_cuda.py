"""Whole Verdicts on a CUDA device: honest kernels, what goes wrong there, clocks, the sandbox."""

from __future__ import annotations

import time
from typing import Any

import pytest
from misbehaviour import candidate, honest, reference
from musacoder_verifier.backends import registry
from musacoder_verifier.backends.cuda import CudaBackend
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifyOptions

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="session")]
LARGE = "8192, 4096"  # 128 MiB a tensor: bandwidth decides
SMALL = "64, 257"


async def _verify(
    verifier: Verifier, forward: str, shape: str = SMALL, of: str | None = None, **options: Any
) -> Verdict:
    chosen = {
        "backend": "cuda", "policy": "native-only", "timing": False, "scope": False,
        "profile": False, "compile_baseline": False, **options,
    }  # fmt: skip
    source = honest("cuda") if forward == "honest" else candidate("cuda", forward)
    return await verifier.verify(
        Reference(of or reference(shape)), Candidate(source, path="k.py"), VerifyOptions(**chosen)
    )


def _rules(verdict: Verdict) -> set[str]:
    assert verdict.legality is not None
    return {f.rule for f in verdict.legality.findings if f.severity == "violation"}


async def test_an_honest_kernel_is_ok_and_its_time_is_plausible(verifier: Verifier) -> None:
    verdict = await _verify(verifier, "honest", LARGE, timing=True, scope=True)
    assert verdict.status == "ok", (verdict.failure, verdict.legality)
    timing = verdict.timing
    assert timing is not None, verdict
    assert verdict.backend == "cuda" and "driver" in verdict.versions
    assert verdict.versions["architecture"].startswith("sm_")
    # 256 MiB have to move: no card does that in 20 us, and every card in 20 ms.
    assert 0.02 < timing.candidate_ms < 20.0
    assert 0.5 < timing.speedup_eager < 2.0
    low, high = timing.ci95
    assert low <= timing.speedup_eager <= high and (high - low) / timing.speedup_eager < 0.1
    assert 0.3 < timing.roofline["fraction"] < 1.2
    assert timing.host_ms["candidate"] < 1.0
    assert timing.interleaved


async def test_a_small_kernel_is_timed_without_its_launch(verifier: Verifier) -> None:
    verdict = await _verify(verifier, "honest", SMALL, timing=True)
    assert verdict.timing is not None, (verdict.failure, verdict.legality)
    # Handing a call over takes longer than 16,000 comparisons.
    assert verdict.timing.candidate_ms < verdict.timing.host_ms["candidate"]
    assert any("back to back" in note for note in verdict.timing.notes)


async def test_work_on_another_queue_is_found(verifier: Verifier) -> None:
    verdict = await _verify(verifier, "return ext.elsewhere(x)", LARGE, timing=True)
    assert verdict.status != "ok", verdict.timing
    assert verdict.timing is None


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        ("return ext.illegal(x)", "illegal"),
        ("return ext.trap(x)", "launch failure|trap|unspecified"),
        ("return ext.unlaunchable(x)", "invalid configuration|invalid argument"),
    ],
)
async def test_what_a_kernel_did_is_named(verifier: Verifier, forward: str, says: str) -> None:
    verdict = await _verify(verifier, forward)
    assert verdict.status == "runtime_error", verdict
    assert verdict.failure is not None
    assert any(word in verdict.failure.message for word in says.split("|")), verdict.failure
    assert (await _verify(verifier, "honest")).status == "ok"


async def test_a_hanging_kernel_is_killed_and_the_next_verdict_is_its_own(
    verifier: Verifier,
) -> None:
    verdict = await _verify(verifier, "return ext.spin(x)", stage_timeout=8.0)
    assert verdict.status == "timeout", verdict
    started = time.monotonic()
    after = await _verify(verifier, "honest")
    assert after.status == "ok", after.failure
    print(f"the honest Verdict after a hang took {time.monotonic() - started:.2f} s")


async def test_unwritten_outputs_do_not_pass(verifier: Verifier) -> None:
    for shape in (SMALL, LARGE):
        verdict = await _verify(verifier, "return ext.partial(x)", shape)
        assert verdict.status == "wrong_result", (shape, verdict)


async def test_who_wants_more_memory_than_there_is_was_alone_when_it_failed(
    verifier: Verifier,
) -> None:
    verdict = await _verify(verifier, "return ext.greedy(x)")
    assert verdict.status == "runtime_error" and verdict.failure is not None
    assert "out of memory" in verdict.failure.message, verdict.failure


async def test_sides_that_do_not_fit_together_take_turns(verifier: Verifier) -> None:
    # The Reference takes 60 % of the card for a moment, the Candidate too: only one at a time fits.
    gpu = registry.backend("cuda")
    assert isinstance(gpu, CudaBackend) and gpu.gpu is not None
    count = int(0.6 * gpu.gpu.memory_bytes) // 4
    scratch = f"torch.empty({count}, device=x.device)[:1].zero_()"
    of = reference(SMALL).replace(
        "return torch.relu(x)", f"scratch = {scratch}; return torch.relu(x) + scratch"
    )
    forward = f"scratch = {scratch}\nreturn ext.rectify(x) + scratch"
    verdict = await _verify(
        verifier, forward, of=of, policy="kernelbench", timing=True, timing_budget=5.0
    )
    assert verdict.status == "ok", (verdict.failure, verdict.legality)
    assert verdict.timing is not None and not verdict.timing.interleaved
    assert any("took turns" in note for note in verdict.timing.notes)


async def test_precision_is_the_same_on_both_sides(verifier: Verifier) -> None:
    of = reference(SMALL).replace("torch.relu(x)", "torch.relu(x) @ torch.relu(x).t()")
    verdict = await _verify(
        verifier, "y = ext.rectify(x)\nreturn y @ y.t()", "512, 512", of=of,
        policy="libraries-allowed",
    )  # fmt: skip
    assert verdict.correctness is not None and verdict.correctness.passed, verdict.failure
    assert verdict.versions["tf32"] == "off"


@pytest.mark.parametrize(
    "attempt",
    [
        "open('/etc/musacoder-was-here', 'w').write('x')",
        "import os; open(os.path.expanduser('~/musacoder-was-here'), 'w').write('x')",
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)",
        "import os; os.fork()",
        "import subprocess; subprocess.run(['true'], check=True)",
        "import os; os.kill(os.getppid(), 9)",
    ],
)
async def test_the_sandbox_holds_with_the_driver_let_through(
    verifier: Verifier, attempt: str
) -> None:
    forward = f"{attempt}\nreturn ext.rectify(x)"
    verdict = await _verify(verifier, forward)
    assert verdict.status == "runtime_error", (attempt, verdict)
    assert verdict.failure is not None
    refused = ("Permission", "PermissionError", "not permitted", "Read-only", "OSError", "Error")
    assert any(word in verdict.failure.message for word in refused), verdict.failure


async def test_every_layer_is_in_force_and_cuda_works_under_it(verifier: Verifier) -> None:
    worker = await verifier.worker("cuda")
    missing = {name: state for name, state in worker.info.sandbox.items() if state != "on"}
    assert not missing


async def test_every_gpu_measures_on_its_own(verifier: Verifier) -> None:
    names = registry.devices("cuda")
    locks = {registry.backend(name).lock_name() for name in names}
    assert len(locks) == len(names) >= 1
    missing = await _verify(verifier, "honest", backend=f"cuda:{len(names)}")
    assert missing.status == "infra_error" and missing.failure is not None
    assert "there is no cuda" in missing.failure.message


async def test_torch_compile_is_the_second_baseline(verifier: Verifier) -> None:
    verdict = await _verify(verifier, "honest", LARGE, timing=True, compile_baseline=True)
    assert verdict.timing is not None, verdict.failure
    assert verdict.timing.compile_ms is not None, verdict.timing.notes
