"""One runtime worker for all tests of the verifier: importing torch takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from musacoder_verifier.worker import Worker

TESTS = Path(__file__).parent


@pytest.fixture(scope="session")
def worker_environment() -> dict[str, str]:
    """Lets children of `worker_children` be forked, as kind "worker_children.run_code"."""
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(TESTS), *([path] if path else [])])}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def worker(worker_environment: dict[str, str]) -> AsyncIterator[Worker]:
    """Shared: a test must not kill it. Tests that use it run on the session's loop, see
    `pytest.mark.asyncio(loop_scope="session")`."""
    started = await Worker.start(sys.executable, env=worker_environment)
    yield started
    await started.close()
