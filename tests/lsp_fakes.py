"""The seam between the server and what it drives, faked: an engine and a verifier that do at once
what a test tells them. Also a server process made of them: `python lsp_fakes.py MODE`.

Modes: `ok`, `slower`, `compile_error`, `repairable`, `declined`, `hang` (a child process that
sleeps until it is killed), `noise` (prints on every way to stdout, also from a child), `raise`,
`reference_error`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from musacoder_inference.engines.base import (
    Declined,
    Event,
    Generated,
    GenerationRequest,
    Progress,
)
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import (
    CompileReport,
    Correctness,
    Diagnostic,
    Failure,
    Legality,
    StageReport,
    Status,
    Timing,
    Verdict,
)
from musacoder_verifier.workload import InputSpec, Workload

from musacoder_lsp.jobs.makers import Makers
from musacoder_lsp.settings import Settings


def verdict(
    status: Status = "ok",
    *,
    speedup: float = 2.31,
    path: str | None = None,
    reward: float | None = None,
    **changes: Any,
) -> Verdict:
    failure = None
    diagnostics: tuple[Diagnostic, ...] = ()
    if status != "ok":
        failure = Failure(status, "compile", f"the kernel ended as {status}", "line 3: 'x' is bad")
    if status == "compile_error":
        diagnostics = (Diagnostic(path or "k.py", 3, 5, "error", "'x' was not declared"),)
    timed = Timing(
        candidate_ms=1.0,
        eager_ms=speedup,
        compile_ms=1.12,
        speedup_eager=speedup,
        speedup_compile=1.12,
        ci95=(speedup - 0.05, speedup + 0.05),
        samples=60,
        spread={"candidate": 0.02, "eager": 0.03, "compile": 0.02},
        compile_mode="max-autotune",
        threads=2,
    )
    values: dict[str, Any] = {
        "status": status,
        "policy": "libraries-allowed",
        "faster": status == "ok" and speedup > 1.05,
        "stages": {"collect": StageReport(0.1), "compile": StageReport(0.4)},
        "failure": failure,
        "compile": CompileReport("fast", 0.4, diagnostics=diagnostics),
        "correctness": Correctness(True, 5, 5, max_abs_error=1e-6) if status == "ok" else None,
        "legality": Legality("pass") if status == "ok" else None,
        "timing": timed if status == "ok" else None,
        "reward": reward if reward is not None else (1.3 if status == "ok" else -0.5),
        "backend": "cpu",
        "device": "test cpu, 2 cores",
        "workload": Workload("annotation", (InputSpec("x", "float32", (1024, 1024)),)),
        "versions": {"torch": "2.13.0", "python": "3.11.7"},
        "key": "k" * 64,
        "not_checked": ("backward", "other devices"),
        "wall_seconds": 1.0,
    }
    return Verdict(**{**values, **changes})


@dataclass
class FakeEngine:
    mode: str = "ok"
    name: str = "synth"
    label: str = "synth (no model)"
    max_turns: int = 1
    model: str | None = None
    requests: list[GenerationRequest] = field(default_factory=list)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.requests.append(request)
        yield Progress("writing", 3, 43.0)
        if self.mode == "declined":
            yield Declined("conv2d is not covered by synth")
            return
        if self.mode == "noise":
            await _make_noise()
        await asyncio.sleep(0)
        yield Generated(f"# turn {request.turn}\n# two\nclass ModelNew:\n    pass\n", self.model)


async def _make_noise() -> None:
    print("a stray print")
    os.write(1, b"Content-Length: 7\r\n\r\ngarbage")
    child = await asyncio.create_subprocess_exec("sh", "-c", "echo child noise; cat")
    await child.wait()


class FakeVerifier:
    """Ends turn n with `outcomes[n]`, the last one from then on."""

    def __init__(self, mode: str = "ok") -> None:
        self.mode = mode
        self.verified: list[Candidate] = []
        self.outcomes: list[Status] = {
            "compile_error": ["compile_error"],
            "repairable": ["compile_error", "ok"],
        }.get(mode, ["ok"])  # type: ignore[assignment]

    async def __aenter__(self) -> FakeVerifier:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def probe(self, reference: Reference) -> Any:
        failure = None
        if self.mode == "reference_error":
            failure = Failure(
                "reference_error", "reference", "NameError: no such name", "Traceback", None, 7
            )
        return SimpleNamespace(workload=None, failure=failure)

    async def export(self, reference: Reference) -> Any:
        if self.mode == "reference_error":
            return SimpleNamespace(graph=None, error="it does not run")
        return SimpleNamespace(graph={"nodes": []}, error=None)

    async def verify(
        self,
        reference: Reference,
        candidate: Candidate,
        options: Any,
        on_stage: Callable[[Any], None],
    ) -> Verdict:
        self.verified.append(candidate)
        for stage in ("collect", "compile", "correctness"):
            on_stage(SimpleNamespace(stage=stage, state="started", seconds=0.0, detail={}))
            await asyncio.sleep(0)
        waiting = SimpleNamespace(
            stage="timing", state="waiting", seconds=0.0, detail={"device": "cpu:0"}
        )
        on_stage(waiting)
        if self.mode == "hang":
            await _hang()
        if self.mode == "raise":
            raise RuntimeError("a defect of ours")
        status = self.outcomes[min(len(self.verified), len(self.outcomes)) - 1]
        return verdict(status, path=candidate.path, speedup=0.7 if self.mode == "slower" else 2.31)


async def _hang() -> None:
    process = await asyncio.create_subprocess_exec(
        "sleep", "1000", stdin=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def makers(
    mode: str = "ok", engine: FakeEngine | None = None, verifier: FakeVerifier | None = None
) -> Makers:
    chosen = engine or FakeEngine(mode)
    if mode == "repairable" and engine is None:
        chosen = FakeEngine(mode, "openai", "MusaCoder 9B", 3, "musacoder-9b")
    judge = verifier or FakeVerifier(mode)

    def make_engine(settings: Settings) -> FakeEngine:
        return chosen

    def make_verifier(python: str, settings: Settings) -> FakeVerifier:
        return judge

    return Makers(engine=make_engine, verifier=make_verifier, options=lambda settings: settings)


if __name__ == "__main__":
    from musacoder_lsp.transport import claim_stdin, claim_stdout

    write_fd = claim_stdout()
    read_fd = claim_stdin()
    from musacoder_lsp.server import run

    os._exit(run(read_fd, write_fd, makers(sys.argv[1])))
