"""The bottleneck in words: a roofline, and the reasons that keep a kernel below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from musacoder_verifier.profile.kernel_profile import Bottleneck, KernelProfile, ProfiledKernel
from musacoder_verifier.profile.work import Work

# From this share of its roof on, a kernel is as good as its roof lets it be.
_NEAR = 0.6
# Above it, what moved cannot all have come from memory.
_BEYOND = 1.1
# The device computes less than this share of the time: somebody else's time decides.
_IDLE = 0.5
# Fewer warps than this share leave latency uncovered, unless each does much at a time.
_THIN = 0.25
_FEW_THREADS = 0.6


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the device was measured to do: bytes a second read plus written by a copy, operations
    a second of a large matrix product by dtype."""

    bytes_per_second: float | None = None
    matrix: Mapping[str, float] = field(default_factory=dict)
    multiprocessors: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of the Candidate: `seconds` of one call, and the host's threads at work."""

    seconds: float
    kernels: tuple[ProfiledKernel, ...] = ()
    launches: int | None = None
    threads: int | None = None
    busy_threads: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Roof:
    kind: Bottleneck
    fraction: float
    words: str
    least: float  # seconds


@dataclass(frozen=True, slots=True)
class _Reason:
    kind: Bottleneck
    words: str
    hint: str


def judge(work: Work | None, ceilings: Ceilings, seen: Observed) -> KernelProfile:
    """The profile of a Candidate that took `seen.seconds` a call for `work`."""
    roofs = _roofs(work, ceilings, seen.seconds) if work is not None else []
    roof = max(roofs, key=lambda item: item.fraction, default=None)
    near = roof is not None and roof.fraction >= _NEAR
    reasons = [] if near else list(_reasons(ceilings, seen))
    bottleneck: Bottleneck = "unknown"
    if reasons:
        bottleneck = reasons[0].kind
    elif roof is not None:
        bottleneck = roof.kind
    notes = list(seen.notes)
    if work is not None and work.guessed:
        notes.append(f"counted as one operation an element: {', '.join(work.guessed)}")
    matrix = ceilings.matrix.get(work.matrix_dtype or "") if work is not None else None
    return KernelProfile(
        bottleneck=bottleneck,
        sentence=_sentence(roof, reasons),
        hints=tuple(_hints(work, roof, reasons, seen.seconds)),
        bytes_moved=work.bytes_moved if work else None,
        operations=work.operations if work else None,
        matrix_operations=work.matrix_operations if work else None,
        bytes_per_second=work.bytes_moved / seen.seconds if work else None,
        operations_per_second=work.operations / seen.seconds if work else None,
        bandwidth_ceiling=ceilings.bytes_per_second,
        matrix_ceiling=matrix,
        launches=seen.launches,
        busy_threads=seen.busy_threads,
        kernels=seen.kernels,
        counters=seen.counters,
        notes=tuple(notes),
    )


def _roofs(work: Work, ceilings: Ceilings, seconds: float) -> list[_Roof]:
    roofs = []
    if ceilings.bytes_per_second and work.bytes_moved:
        least = work.bytes_moved / ceilings.bytes_per_second
        rates = (work.bytes_moved / seconds, ceilings.bytes_per_second)
        words = f"of measured copy bandwidth ({of(*rates, 'B/s')})"
        roofs.append(_Roof("memory", least / seconds, words, least))
    rate = ceilings.matrix.get(work.matrix_dtype or "")
    if rate and work.matrix_operations:
        least = work.matrix_operations / rate
        words = (
            f"of the measured {work.matrix_dtype} matrix rate "
            f"({of(work.matrix_operations / seconds, rate, 'op/s')})"
        )
        roofs.append(_Roof("compute", least / seconds, words, least))
    return roofs


def _reasons(ceilings: Ceilings, seen: Observed) -> list[_Reason]:
    """Most telling first."""
    found = [
        _idle(seen),
        _few_blocks(ceilings, seen.kernels),
        _few_threads(seen),
        _spills(seen.kernels),
        _thin(seen.kernels),
    ]
    return [reason for reason in found if reason is not None]


def _idle(seen: Observed) -> _Reason | None:
    known = [kernel.seconds for kernel in seen.kernels if kernel.seconds is not None]
    if not known or sum(known) >= _IDLE * seen.seconds:
        return None
    words = f"launch-bound: the device computes {duration(sum(known))} of {duration(seen.seconds)}"
    count = f"{seen.launches} launches" if seen.launches else "the launches"
    hint = f"Fuse {count} into fewer, and do less on the host between them."
    return _Reason("launch", words, hint)


def _few_blocks(ceilings: Ceilings, kernels: Sequence[ProfiledKernel]) -> _Reason | None:
    kernel = _slowest(kernels)
    processors = ceilings.multiprocessors
    if kernel is None or kernel.blocks is None or not processors or kernel.blocks >= processors:
        return None
    words = f"too few blocks: {kernel.blocks} for {processors} multiprocessors in {kernel.name}"
    hint = (
        f"{kernel.name} starts {kernel.blocks} blocks on {processors} multiprocessors: give each "
        "block less, or split a reduction over several blocks."
    )
    return _Reason("parallelism", words, hint)


def _few_threads(seen: Observed) -> _Reason | None:
    if seen.busy_threads is None or not seen.threads or seen.threads < 2:
        return None
    if seen.busy_threads >= _FEW_THREADS * seen.threads:
        return None
    words = f"{seen.busy_threads:.1f} of {seen.threads} threads at work"
    hint = f"Share the outermost loop among the {seen.threads} threads; {words}."
    return _Reason("parallelism", words, hint)


def _spills(kernels: Sequence[ProfiledKernel]) -> _Reason | None:
    kernel = max(kernels, key=lambda item: item.spill_bytes or 0, default=None)
    if kernel is None or not kernel.spill_bytes:
        return None
    words = f"{kernel.name} spills {kernel.spill_bytes} bytes a thread"
    hint = f"{words}: keep fewer values live (a smaller tile, less unrolling), or bound the block."
    return _Reason("spills", words, hint)


def _thin(kernels: Sequence[ProfiledKernel]) -> _Reason | None:
    kernel = _slowest(kernels)
    if kernel is None or kernel.occupancy is None or kernel.occupancy >= _THIN:
        return None
    by = f", limited by {kernel.occupancy_limiter}" if kernel.occupancy_limiter else ""
    words = f"occupancy {kernel.occupancy:.0%} in {kernel.name}{by}"
    return _Reason("occupancy", words, f"Raise the {words}; or let each thread do more at a time.")


def _slowest(kernels: Sequence[ProfiledKernel]) -> ProfiledKernel | None:
    """The kernel that counts; the only one where no time is known."""
    timed = [kernel for kernel in kernels if kernel.seconds is not None]
    if timed:
        return max(timed, key=lambda kernel: kernel.seconds or 0.0)
    return kernels[0] if len(kernels) == 1 else None


def _sentence(roof: _Roof | None, reasons: Sequence[_Reason]) -> str:
    parts = [reason.words for reason in reasons]
    if roof is None:
        return "; ".join(parts) or "no bottleneck is known"
    if roof.fraction > _BEYOND and roof.kind == "memory":
        text = f"at {roof.fraction:.0%} {roof.words}: served from caches"
    elif parts:
        text = f"at {roof.fraction:.0%} {roof.words}"
    else:
        text = f"{roof.kind}-bound at {roof.fraction:.0%} {roof.words}"
    return "; ".join([*parts, text])


def _hints(
    work: Work | None, roof: _Roof | None, reasons: Sequence[_Reason], seconds: float
) -> list[str]:
    """For whoever makes it faster, most useful first."""
    hints = [reason.hint for reason in reasons]
    if roof is None or work is None:
        return hints
    left = f"The least possible is {duration(roof.least)}, the kernel takes {duration(seconds)}"
    if roof.fraction >= _NEAR:
        return [*hints, f"{left}: {roof.fraction:.0%} {roof.words}; little is left to gain."]
    if roof.kind == "memory":
        hints.append(
            f"{left}: it moves {amount(work.bytes_moved, 'B')} at least. Read each input once and "
            "in order (neighbouring threads or iterations on neighbouring addresses, vector "
            "loads), and keep intermediate results on the chip."
        )
    else:
        hints.append(
            f"{left}: {amount(work.matrix_operations, 'operations')} of matrix products. Block for "
            "registers and on-chip memory so that each value loaded is used many times, and use "
            "the matrix units that keep the precision asked for."
        )
    return hints


_PREFIXES = ("", "k", "M", "G", "T", "P")


def _scale(value: float) -> int:
    power = 0
    while value >= 999.5 and power < len(_PREFIXES) - 1:
        value, power = value / 1000.0, power + 1
    return power


def amount(value: float, unit: str) -> str:
    """Three digits and a prefix: `12.6 MB`."""
    power = _scale(value)
    return f"{value / 1000.0**power:.3g} {_PREFIXES[power]}{unit}"


def of(value: float, ceiling: float, unit: str) -> str:
    """`12.1 of 31.8 GB/s`."""
    power = _scale(ceiling)
    scaled = 1000.0**power
    return f"{value / scaled:.3g} of {ceiling / scaled:.3g} {_PREFIXES[power]}{unit}"


def duration(seconds: float) -> str:
    """`2.4 ms`, `31 us`."""
    if seconds >= 1.0:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
