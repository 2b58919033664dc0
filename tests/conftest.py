"""Fixtures for every package's tests."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

_VARIABLE = "MUSACODER_CENSUS"


class ProcessCensus:
    """Counts the processes that descend from something started with `environment`, wherever they
    were adopted, whatever session or namespace they went into."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex

    @property
    def environment(self) -> dict[str, str]:
        """To be added to the environment of what is started."""
        return {_VARIABLE: self.token}

    def alive(self) -> list[psutil.Process]:
        """Those that run now; a zombie has no environment left and does not count."""
        wanted = f"{_VARIABLE}={self.token}".encode()
        found = []
        for process in psutil.process_iter():
            try:
                with open(f"/proc/{process.pid}/environ", "rb") as file:  # noqa: PTH123
                    if wanted in file.read().split(b"\0") and process.pid != os.getpid():
                        found.append(process)
            except OSError:
                continue
        return found

    def survivors(self, seconds: float = 10.0) -> list[psutil.Process]:
        """Waits for all of them to end; those that had not after `seconds`."""
        deadline = time.monotonic() + seconds
        while alive := self.alive():
            left = deadline - time.monotonic()
            if left <= 0:
                return alive
            psutil.wait_procs(alive, timeout=left)
        return []


@pytest.fixture
def census() -> Iterator[ProcessCensus]:
    """A ProcessCensus; whatever it still finds at the end fails the test, and is killed."""
    counted = ProcessCensus()
    yield counted
    survivors = counted.survivors()
    described = [f"{p.pid} {p.name()}" for p in survivors if p.is_running()]
    for process in survivors:
        process.kill()
    assert not described, f"processes left behind: {described}"
