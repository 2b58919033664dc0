"""Occupancy against values of NVIDIA's `cuda_occupancy.h` (CUDA 13.0)."""

from __future__ import annotations

import pytest
from musacoder_verifier.profile.occupancy import capability, occupancy


@pytest.mark.parametrize(
    "architecture, threads, registers, shared, blocks, limiter",
    [
        (75, 32, 64, 1024, 16, "blocks"),
        (75, 192, 255, 32768, 1, "registers"),
        (75, 32, 255, 49152, 1, "shared memory"),
        (75, 64, 32, 4096, 16, "threads"),
        (80, 32, 64, 1024, 32, "blocks"),
        (80, 64, 40, 0, 24, "registers"),
        (80, 96, 128, 32768, 4, "shared memory"),
        (80, 768, 32, 0, 2, "threads"),
        (86, 32, 128, 4096, 16, "blocks"),
        (86, 96, 64, 0, 10, "registers"),
        (86, 32, 64, 49152, 2, "shared memory"),
        (86, 96, 40, 0, 16, "threads"),
        (89, 128, 96, 1024, 5, "registers"),
        (89, 96, 16, 17000, 5, "shared memory"),
        (89, 192, 32, 0, 8, "threads"),
        (90, 32, 40, 1024, 32, "blocks"),
        (90, 384, 96, 17000, 1, "registers"),
        (90, 64, 40, 17000, 12, "shared memory"),
        (90, 64, 16, 0, 32, "threads"),
        (100, 32, 16, 4096, 32, "blocks"),
        (100, 64, 96, 17000, 10, "registers"),
        (100, 32, 128, 17000, 12, "shared memory"),
        (100, 192, 32, 0, 10, "threads"),
        (120, 256, 72, 17000, 3, "registers"),
        (120, 96, 64, 17000, 5, "shared memory"),
        (120, 192, 40, 0, 8, "threads"),
    ],
)  # fmt: skip
def test_blocks_a_multiprocessor(
    architecture: int, threads: int, registers: int, shared: int, blocks: int, limiter: str
) -> None:
    found = occupancy(architecture, threads, registers, shared)
    assert found is not None
    assert (found.blocks, found.limiter) == (blocks, limiter)


def test_the_share_of_warps() -> None:
    found = occupancy(90, 256, 64, 0)
    assert found is not None
    assert (found.blocks, found.fraction) == (4, 0.5)


@pytest.mark.parametrize("given", [(90, 1024, 255, 0), (90, 64, 32, 300 << 10), (33, 64, 32, 0)])
def test_no_figure_for_what_does_not_fit_or_is_unknown(given: tuple[int, int, int, int]) -> None:
    assert occupancy(*given) is None


@pytest.mark.parametrize("name, number", [("sm_90a", 90), ("compute_120", 120), ("?", None)])
def test_capability(name: str, number: int | None) -> None:
    assert capability(name) == number
