"""Hardware counters as `ncu --csv --page raw` prints them, and what they add to a profile.

The format (Nsight Compute documentation, "Command Line Options", `--csv`, `--page raw`): lines that
start with `==`, then a header (`"ID","Process ID",...,"Kernel Name",...`, one column a metric),
a row of units with an empty ID, and one row a launch. With `--print-units base` numbers are not
scaled, so that bytes are bytes and times are nanoseconds in every version.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from musacoder_verifier.profile.bottleneck import amount
from musacoder_verifier.profile.kernel_profile import KernelProfile, ProfiledKernel
from musacoder_verifier.profile.names import short_name

_TIME = "gpu__time_duration.sum"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
_L1, _L2 = "l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"
_GRID, _BLOCK = "launch__grid_size", "launch__block_size"
_REGISTERS = "launch__registers_per_thread"
_SHARED = "launch__shared_mem_per_block"

METRICS = (
    _TIME, _READ, _WRITTEN, _DRAM, _COMPUTE, _WARPS, _L1, _L2, _GRID, _BLOCK, _REGISTERS, _SHARED,
)  # fmt: skip

# Averages over the launches, weighted by their time.
_SHARES = {
    "dram_percent": _DRAM,
    "compute_percent": _COMPUTE,
    "warps_percent": _WARPS,
    "l1_hit_percent": _L1,
    "l2_hit_percent": _L2,
}
# More traffic than this over the least possible is worth a hint.
_REREAD = 1.5
_BOUND = 60.0
_MISSED = 40.0


class NoCounters(Exception):
    """The profiler's output holds no counters: one sentence that says why and what to do."""


@dataclass(frozen=True, slots=True)
class CountedLaunch:
    """One launch; `figures` by metric name, in base units. What was not counted is missing."""

    kernel: str
    figures: Mapping[str, float] = field(default_factory=dict)


def parse(output: str) -> tuple[CountedLaunch, ...]:
    """The launches in the order in which they ran. Raises NoCounters."""
    lines = output.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise NoCounters(_why(output))
    rows = csv.DictReader(line for line in lines[start:] if line.startswith('"'))
    launches = tuple(
        CountedLaunch(str(row.get("Kernel Name")), dict(_figures(row)))
        for row in rows
        if row.get("ID")  # the row of units has none
    )
    if not launches:
        raise NoCounters("ncu saw no kernel launch")
    return launches


def _figures(row: Mapping[str, str | None]) -> Iterable[tuple[str, float]]:
    for metric in METRICS:
        text = (row.get(metric) or "").replace(",", "")
        try:
            yield metric, float(text)
        except ValueError:  # "n/a", or not a metric of this device
            continue


def _why(output: str) -> str:
    if "ERR_NVGPUCTRPERM" in output:
        return (
            "this user may not read hardware counters; an administrator can allow it with the "
            "driver option NVreg_RestrictProfilingToAdminUsers=0"
        )
    if "No kernels were profiled" in output:
        return "ncu saw no kernel launch"
    for line in output.splitlines():
        if line.startswith("==ERROR=="):
            return f"ncu: {line.removeprefix('==ERROR==').strip()}"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    return f"ncu gave no counters: {last.strip()[:200]}"


def kernels(launches: Sequence[CountedLaunch]) -> tuple[ProfiledKernel, ...]:
    """By name, longest first; geometry is that of the longest launch."""
    named: dict[str, list[CountedLaunch]] = {}
    for launch in launches:
        named.setdefault(short_name(launch.kernel), []).append(launch)
    found = [_kernel(name, group) for name, group in named.items()]
    return tuple(sorted(found, key=lambda kernel: -(kernel.seconds or 0.0)))


def _kernel(name: str, group: Sequence[CountedLaunch]) -> ProfiledKernel:
    longest = max(group, key=lambda launch: launch.figures.get(_TIME, 0.0)).figures

    def whole(metric: str) -> int | None:
        return int(longest[metric]) if metric in longest else None

    seconds = sum(launch.figures.get(_TIME, 0.0) for launch in group) * 1e-9
    return ProfiledKernel(
        name,
        len(group),
        seconds or None,
        whole(_GRID),
        whole(_BLOCK),
        whole(_REGISTERS),
        whole(_SHARED),
        occupancy=longest[_WARPS] / 100.0 if _WARPS in longest else None,
    )


def totals(launches: Sequence[CountedLaunch]) -> dict[str, float]:
    """`seconds`, `dram_bytes` and shares in percent, over all launches of one call."""
    seconds = sum(launch.figures.get(_TIME, 0.0) for launch in launches) * 1e-9
    found = {"seconds": seconds} if seconds else {}
    moved = [launch.figures[name] for launch in launches for name in (_READ, _WRITTEN)
             if name in launch.figures]  # fmt: skip
    if moved:
        found["dram_bytes"] = sum(moved)
    for key, metric in _SHARES.items():
        weighed = [(launch.figures[metric], launch.figures.get(_TIME, 0.0)) for launch in launches
                   if metric in launch.figures]  # fmt: skip
        weight = sum(time for _, time in weighed)
        if weight:
            found[key] = sum(share * time for share, time in weighed) / weight
    return found


def merged(profile: KernelProfile, launches: Sequence[CountedLaunch]) -> KernelProfile:
    """The profile with what the counters say; measured occupancy replaces the computed one."""
    counted = totals(launches)
    known = {kernel.name: kernel for kernel in profile.kernels}
    together = []
    for kernel in kernels(launches):
        before = known.get(kernel.name)
        if before is not None:
            kernel = replace(
                kernel,
                spill_bytes=before.spill_bytes,
                occupancy_limiter=before.occupancy_limiter,
            )
        together.append(kernel)
    return replace(
        profile,
        sentence=f"{profile.sentence}; {sentence(counted)}" if counted else profile.sentence,
        hints=(*hints(profile, counted), *profile.hints),
        launches=len(launches),
        kernels=tuple(together),
        counters=counted,
    )


def sentence(counted: Mapping[str, float]) -> str:
    """Such as `counters: memory at 71% of its peak, compute units at 22%, warps at 48%`."""
    words = {
        "dram_percent": "memory at {:.0f}% of its peak",
        "compute_percent": "compute units at {:.0f}%",
        "warps_percent": "warps at {:.0f}%",
    }
    said = [text.format(counted[key]) for key, text in words.items() if key in counted]
    return f"counters: {', '.join(said) or 'none of use'}"


def hints(profile: KernelProfile, counted: Mapping[str, float]) -> list[str]:
    """What the counters alone can tell, most useful first."""
    found = []
    moved, least = counted.get("dram_bytes"), profile.bytes_moved
    if moved is not None and least and moved > _REREAD * least:
        found.append(
            f"It moves {amount(moved, 'B')} through memory, {moved / least:.1f} times the least "
            "possible: keep what is read again in registers or shared memory, and fuse kernels "
            "that hand whole tensors to each other."
        )
    memory, compute = counted.get("dram_percent"), counted.get("compute_percent")
    if memory is not None and compute is not None and max(memory, compute) < _MISSED:
        found.append(
            f"Memory is {memory:.0f}% busy and the compute units {compute:.0f}%: it waits. More "
            "warps, more independent loads a thread, or fewer barriers hide the latency."
        )
    elif compute is not None and memory is not None and compute >= _BOUND > memory:
        found.append(
            f"The compute units are {compute:.0f}% busy and memory {memory:.0f}%: fewer "
            "instructions a byte (vector loads, cheaper index arithmetic, matrix units) help."
        )
    return found
