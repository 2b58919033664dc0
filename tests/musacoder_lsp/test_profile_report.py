"""A kernel's profile in the report, and as hints of an optimisation turn."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from lsp_fakes import verdict
from musacoder_verifier.profile.kernel_profile import KernelProfile, ProfiledKernel
from musacoder_verifier.verdict import Legality

from musacoder_lsp.assistant import feedback
from musacoder_lsp.report import WIDTH, verdict_report

KERNEL = ProfiledKernel("softmax", 2, 24e-6, 128, 256, 40, 4096, 0, 0.75, "registers")
PROFILE = KernelProfile(
    "memory",
    "memory-bound at 38% of measured copy bandwidth (12 of 32 GB/s)",
    ("Read each input once.",),
    bytes_moved=12_600_000,
    operations=3_000_000,
    operations_per_second=2.5e9,
    launches=2,
    kernels=(KERNEL,),
)


def test_the_report_names_the_bottleneck_and_its_evidence() -> None:
    lines = verdict_report(verdict(profile=PROFILE))
    text = "\n".join(lines)
    assert "bottleneck memory-bound at 38% of measured copy bandwidth (12 of 32 GB/s)" in lines
    assert "work       12.6 MB at least, 3 Mop at 2.5 Gop/s" in lines
    assert "launches   2 a call" in lines
    assert "softmax: 2 x 12 us, 128 blocks of 256 threads, 40 registers" in text
    assert "occupancy 75% (registers)" in " ".join(text.split())
    assert "no spills" in text


def test_no_profile_where_no_speed_is_shown() -> None:
    found = verdict(profile=PROFILE, legality=Legality("unknown"))
    assert "memory-bound" not in "\n".join(verdict_report(found))


@given(st.text(min_size=1, max_size=300), st.text(max_size=300))
def test_a_profile_is_narrow_whatever_it_says(sentence: str, name: str) -> None:
    profile = replace(PROFILE, sentence=sentence, kernels=(replace(KERNEL, name=name),) * 9)
    lines = verdict_report(verdict(profile=profile))
    assert all(len(line) <= WIDTH and "\n" not in line for line in lines)
    assert len(lines) < 60


def test_hints_go_along_with_the_feedback() -> None:
    assert feedback(verdict(profile=PROFILE)).hints == ("Read each input once.",)
    assert feedback(verdict()).hints == ()
