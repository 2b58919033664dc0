"""Hardware counters: ncu's output, what they add to a profile, and the run that is watched.

The sample follows the documented form of `ncu --csv --page raw --print-units base`; its figures are
made up.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.profile import counters, vendor
from musacoder_verifier.profile.counters import NoCounters
from musacoder_verifier.profile.kernel_profile import KernelProfile, ProfiledKernel
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifyOptions
from musacoder_verifier.verifier import Verifier

SAMPLE = """==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "softmax" - 0: 0%....50%....100% - 8 passes
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","l1tex__t_sector_hit_rate.pct","launch__block_size","launch__grid_size","launch__registers_per_thread","launch__shared_mem_per_block","lts__t_sector_hit_rate.pct","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","byte","byte","%","ns","%","","","register/thread","byte/block","%","%","%"
"0","4242","python3.12","127.0.0.1","void softmax<float, 4>(const float *, float *, int)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","8,000,000","4000000","80","3000","10","256","4096","40","1024","50","20","60"
"1","4242","python3.12","127.0.0.1","scale(float *)","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","2000000","n/a","20","1000","10","128","8","16","0","50","10","20"
"""  # noqa: E501

PROFILE = KernelProfile(
    "memory",
    "memory-bound at 38% of measured copy bandwidth (12 of 32 GB/s)",
    ("Read each input once.",),
    bytes_moved=6_000_000,
    kernels=(ProfiledKernel("softmax", spill_bytes=0, occupancy_limiter="registers"),),
)


def test_launches_are_read_and_remarks_left_out() -> None:
    first, second = counters.parse(SAMPLE)
    assert first.kernel == "void softmax<float, 4>(const float *, float *, int)"
    assert first.figures["dram__bytes_read.sum"] == 8e6
    assert set(first.figures) == set(counters.METRICS)
    assert "dram__bytes_write.sum" not in second.figures


def test_totals_weigh_shares_by_time() -> None:
    found = counters.totals(counters.parse(SAMPLE))
    assert found["seconds"] == pytest.approx(4e-6)
    assert found["dram_bytes"] == 14e6
    assert found["dram_percent"] == pytest.approx((80 * 3 + 20) / 4)
    assert found["warps_percent"] == pytest.approx(50.0)


def test_counters_join_the_profile() -> None:
    found = counters.merged(PROFILE, counters.parse(SAMPLE))
    assert [kernel.name for kernel in found.kernels] == ["softmax", "scale"]
    assert found.kernels[0] == ProfiledKernel(
        "softmax", 1, pytest.approx(3e-6), 4096, 256, 40, 1024, 0, 0.6, "registers"
    )
    assert found.launches == 2
    assert found.sentence.endswith(
        "counters: memory at 65% of its peak, compute units at 18%, warps at 50%"
    )
    assert "14 MB through memory, 2.3 times the least possible" in found.hints[0]
    assert found.hints[-1] == "Read each input once."


@pytest.mark.parametrize(
    "counted, words",
    [
        ({"dram_percent": 20.0, "compute_percent": 15.0}, "it waits"),
        ({"dram_percent": 20.0, "compute_percent": 80.0}, "fewer instructions a byte"),
        ({"dram_bytes": 6.1e6}, None),
        ({}, None),
    ],
)
def test_hints(counted: dict[str, float], words: str | None) -> None:
    found = counters.hints(PROFILE, counted)
    assert (words in " ".join(found)) if words is not None else found == []


@pytest.mark.parametrize(
    "output, words",
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
            "Performance Counters on the target device 0.",
            "may not read hardware counters",
        ),
        ("==WARNING== No kernels were profiled.", "no kernel launch"),
        ("==ERROR== Failed to find metric foo", "ncu: Failed to find metric foo"),
        ("Traceback ...\nImportError: no torch", "ImportError: no torch"),
        ("", "no output"),
        ("\n".join(SAMPLE.splitlines()[:5]), "no kernel launch"),
    ],
)
def test_output_without_counters_says_why(output: str, words: str) -> None:
    with pytest.raises(NoCounters, match=words):
        counters.parse(output)


def test_ncu_is_told_to_leave_clocks_alone_and_what_to_count(tmp_path: Path) -> None:
    (profiler,) = vendor.PROFILERS["cuda"]
    command = profiler.command("/x/ncu", tmp_path / "log", ["python", "run.py"])
    assert command[0] == "/x/ncu" and command[-2:] == ["python", "run.py"]
    assert command[command.index("--clock-control") + 1] == "none"
    assert command[command.index("--metrics") + 1].split(",") == list(counters.METRICS)


REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8, 8)]
"""
CANDIDATE = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        print("a stray print")
        return x.clamp(min=0)
"""


def _stand_in(folder: Path, body: str) -> str:
    """A profiler that really runs what it is given, as the real one does."""
    program = folder / "counting"
    program.write_text(f"#!/bin/sh\nlog=$1; shift\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def _command(program: str, log: Path, run: Sequence[str]) -> list[str]:
    return [program, str(log), *run]


@pytest.mark.asyncio(loop_scope="session")
async def test_a_candidate_runs_under_a_profiler(
    verifier: Verifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample").write_text(SAMPLE)
    program = _stand_in(tmp_path, f'"$@" && cp {tmp_path}/sample "$log"')
    profiler = vendor.VendorProfiler(program, _command, True)
    monkeypatch.setattr(vendor, "PROFILERS", {"cpu": (profiler,)})
    settings = replace(verifier.settings, sandbox=False)
    worker = await verifier.worker()
    launches = await vendor.count(
        worker, settings, Reference(REFERENCE), Candidate(CANDIDATE), VerifyOptions()
    )
    assert len(launches) == 2
    broken = CANDIDATE.replace("x.clamp(min=0)", "x.no_such_method()")
    with pytest.raises(NoCounters, match="no_such_method"):
        await vendor.count(
            worker, settings, Reference(REFERENCE), Candidate(broken), VerifyOptions()
        )


def test_what_is_not_installed_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from musacoder_verifier.backends.cpu import CpuBackend

    with pytest.raises(NoCounters, match="not read on cpu"):
        vendor.installed(CpuBackend())
    missing = vendor.VendorProfiler("no-such-profiler", _command, True)
    monkeypatch.setattr(vendor, "PROFILERS", {"cpu": (missing,)})
    with pytest.raises(NoCounters, match="no-such-profiler is not installed"):
        vendor.installed(CpuBackend())
