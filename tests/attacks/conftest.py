"""One Verifier for all attacks: importing torch takes seconds, and no attack harms the next one."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from musacoder_verifier.verifier import Verifier, VerifierSettings


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def verifier() -> AsyncIterator[Verifier]:
    chosen = os.environ.get("MUSACODER_TEST_CACHE")
    cache = Path(chosen) if chosen else Path(__file__).parents[2] / "build" / "test-cache"
    settings = VerifierSettings(
        python=sys.executable,
        cache_dir=cache,
        lock_folder=cache / "locks",
        stage_timeout=300.0,
        threads=2,
    )
    async with Verifier(settings) as started:
        yield started
