"""One runtime worker for all tests of the verifier: importing torch takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.lanes.prepare import Prepared, abi_flag, language_standard, prepare
from musacoder_verifier.toolchain import Compiler, host_compiler
from musacoder_verifier.verifier import Verifier, VerifierSettings
from musacoder_verifier.worker import Worker, WorkerInfo

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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def worker_info(worker: Worker) -> WorkerInfo:
    return worker.info


@pytest.fixture(scope="session")
def compile_cache() -> Path:
    """Preparing the fast lane takes a minute of a processor, so it outlives a test run."""
    chosen = os.environ.get("MUSACODER_TEST_CACHE")
    return Path(chosen) if chosen else TESTS.parents[1] / "build" / "test-cache"


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    return host_compiler()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def native_flags(worker_info: WorkerInfo) -> tuple[str, ...]:
    """The flags of the fast lane on the cpu backend."""
    standard = language_standard(worker_info)
    return (*backend("cpu").host_flags, standard, "-fPIC", abi_flag(worker_info))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def prepared(
    worker_info: WorkerInfo,
    compiler: Compiler,
    native_flags: tuple[str, ...],
    compile_cache: Path,
) -> Prepared:
    return await prepare(worker_info, compiler, native_flags, compile_cache, 600.0)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def verifier(compile_cache: Path) -> AsyncIterator[Verifier]:
    settings = VerifierSettings(
        python=sys.executable,
        cache_dir=compile_cache,
        # One for all processes that run tests: what they measure is one machine.
        lock_folder=compile_cache / "locks",
        stage_timeout=300.0,
        threads=2,
    )
    async with Verifier(settings) as started:
        yield started
