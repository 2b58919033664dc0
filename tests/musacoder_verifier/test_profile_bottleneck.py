"""What a profile says in words."""

from __future__ import annotations

import pytest
from musacoder_verifier.profile.bottleneck import Ceilings, Observed, amount, duration, judge, of
from musacoder_verifier.profile.kernel_profile import ProfiledKernel
from musacoder_verifier.profile.work import Work

COPY = Ceilings(1e11, {"float32": 1e12}, multiprocessors=132)
# 1 ms at copy bandwidth.
STREAM = Work(60_000_000, 40_000_000, 0, 10_000_000)
# 2 ms at the matrix rate, 0.1 ms at copy bandwidth.
PRODUCT = Work(6_000_000, 4_000_000, 2_000_000_000, 0, "float32")


def test_below_its_roof() -> None:
    found = judge(STREAM, COPY, Observed(1e-3 / 0.38))
    assert found.bottleneck == "memory"
    assert found.sentence == ("memory-bound at 38% of measured copy bandwidth (38 of 100 GB/s)")
    assert found.bandwidth_fraction == pytest.approx(0.38)
    assert "at least" in found.hints[-1] and "100 MB" in found.hints[-1]


def test_the_nearer_roof_decides() -> None:
    found = judge(PRODUCT, COPY, Observed(4e-3))
    assert found.bottleneck == "compute"
    assert found.sentence.startswith("compute-bound at 50% of the measured float32 matrix rate")
    assert found.matrix_ceiling == 1e12


def test_near_the_roof_nothing_else_is_blamed() -> None:
    spilling = ProfiledKernel("f", 1, 1e-3, spill_bytes=64)
    found = judge(STREAM, COPY, Observed(1.2e-3, (spilling,), 1))
    assert (found.bottleneck, len(found.hints)) == ("memory", 1)
    assert "little is left" in found.hints[0]
    assert "spills" not in found.sentence


def test_faster_than_memory_is_said_to_come_from_caches() -> None:
    found = judge(STREAM, COPY, Observed(0.5e-3))
    assert (
        found.sentence == "at 200% of measured copy bandwidth (200 of 100 GB/s): served from caches"
    )


@pytest.mark.parametrize(
    "kernel, bottleneck, words",
    [
        (ProfiledKernel("f", 5, 1e-3), "launch", "the device computes 1 ms of 10 ms"),
        (ProfiledKernel("f", 1, 9e-3, blocks=16), "parallelism", "16 for 132 multiprocessors in f"),
        (ProfiledKernel("f", 1, 9e-3, spill_bytes=64), "spills", "f spills 64 bytes a thread"),
        (
            ProfiledKernel("f", 1, 9e-3, 500, occupancy=0.125, occupancy_limiter="registers"),
            "occupancy",
            "occupancy 12% in f, limited by registers",
        ),
    ],
)  # fmt: skip
def test_reasons(kernel: ProfiledKernel, bottleneck: str, words: str) -> None:
    found = judge(STREAM, COPY, Observed(10e-3, (kernel,), 5))
    assert found.bottleneck == bottleneck
    assert words in found.sentence
    assert "10% of measured copy bandwidth" in found.sentence
    assert len(found.hints) == 2


def test_the_slowest_of_several_kernels_counts() -> None:
    kernels = (ProfiledKernel("small", 1, 1e-4, blocks=1), ProfiledKernel("big", 1, 9e-3, 999))
    assert judge(STREAM, COPY, Observed(10e-3, kernels, 2)).bottleneck == "memory"


def test_idle_threads() -> None:
    found = judge(STREAM, COPY, Observed(10e-3, threads=8, busy_threads=1.0))
    assert found.bottleneck == "parallelism"
    assert found.sentence.startswith("1.0 of 8 threads at work; at 10% of")
    assert judge(STREAM, COPY, Observed(10e-3, threads=2, busy_threads=1.9)).bottleneck == "memory"


def test_without_a_graph_the_reasons_remain() -> None:
    found = judge(None, Ceilings(), Observed(1e-3))
    assert (found.bottleneck, found.sentence) == ("unknown", "no bottleneck is known")
    spilling = ProfiledKernel("f", spill_bytes=8)
    assert judge(None, Ceilings(), Observed(1e-3, (spilling,))).bottleneck == "spills"


def test_a_dtype_without_a_measured_rate_has_only_the_memory_roof() -> None:
    half = Work(6_000_000, 4_000_000, 2_000_000_000, 0, "float16")
    found = judge(half, COPY, Observed(4e-3))
    assert (found.bottleneck, found.matrix_ceiling) == ("memory", None)


def test_guessed_operators_are_noted() -> None:
    found = judge(Work(1, 1, 0, 1, guessed=("zeta",)), COPY, Observed(1.0))
    assert found.notes == ("counted as one operation an element: zeta",)


def test_figures() -> None:
    assert amount(12_600_000, "B") == "12.6 MB"
    assert amount(999.9, "B") == "1 kB"
    assert of(1e10, 3.18e10, "B/s") == "10 of 31.8 GB/s"
    assert [duration(s) for s in (2.0, 2.4e-3, 31e-6)] == ["2 s", "2.4 ms", "31 us"]
