"""One compile cache for every test that runs the real verifier: preparing the fast lane takes a
minute of a processor, so it outlives a test run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cache_environment() -> dict[str, str]:
    """Makes a server use the cache of the verifier's tests as the cache of its user."""
    chosen = os.environ.get("MUSACODER_TEST_CACHE")
    cache = (Path(chosen) if chosen else _ROOT / "build" / "test-cache").resolve()
    cache.mkdir(parents=True, exist_ok=True)
    home = cache.with_name(f"{cache.name}-home")
    home.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (home / "musacoder").symlink_to(cache)
    return {"XDG_CACHE_HOME": str(home)}
