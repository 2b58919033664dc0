"""A Verifier that is told to run nothing without a whole sandbox."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hand_candidates import HONEST, reference
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict_json import from_json, to_json
from musacoder_verifier.verifier import Verifier, VerifierSettings, VerifyOptions
from musacoder_verifier.worker import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def _with_layers(
    folder: Path, worker: Worker, layers: Mapping[str, str], *, sandbox: bool = True
) -> AsyncIterator[Verifier]:
    settings = VerifierSettings(
        python=sys.executable, cache_dir=folder, sandbox=sandbox, strict_sandbox=True
    )
    verifier = Verifier(settings)
    whole = worker.info
    worker.info = replace(whole, sandbox=layers)
    verifier._workers["cpu"] = worker
    try:
        yield verifier
    finally:
        worker.info = whole  # others use it too


@pytest.mark.parametrize(
    ("layers", "sandbox", "says"),
    [
        ({"landlock": "on", "seccomp": "unavailable: no table"}, True, "seccomp unavailable: no"),
        ({"landlock": "on"}, False, "switched off"),
    ],
)
async def test_nothing_is_run_without_a_layer(
    tmp_path: Path, worker: Worker, layers: Mapping[str, str], sandbox: bool, says: str
) -> None:
    async with _with_layers(tmp_path, worker, layers, sandbox=sandbox) as verifier:
        verdict = await verifier.verify(
            Reference(reference()), Candidate(HONEST), VerifyOptions(timing=False)
        )
    assert verdict.status == "infra_error" and verdict.failure is not None
    assert says in verdict.failure.message
    assert not verdict.stages


async def test_a_verdict_says_what_held_the_candidate(tmp_path: Path, worker: Worker) -> None:
    wrong = "class ModelNew:\n    pass\nraise ValueError('at once')\n"
    async with _with_layers(tmp_path, worker, {"landlock": "on"}) as verifier:
        verdict = await verifier.verify(Reference(reference()), Candidate(wrong))
    assert verdict.sandbox == {"landlock": "on"}
    assert from_json(to_json(verdict)).sandbox == {"landlock": "on"}
