"""Stage profile: why a timed Candidate is as fast as it is. It decides nothing.

What does not depend on the Candidate is kept on disk: the work of a Reference by content key, the
ceilings of a device for a day.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from musacoder_verifier import probe
from musacoder_verifier.artefacts import content_key
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.kernel_resources import KernelResources
from musacoder_verifier.profile import work as working
from musacoder_verifier.profile.bottleneck import Ceilings, Observed, judge
from musacoder_verifier.profile.kernel_profile import KernelProfile, ProfiledKernel
from musacoder_verifier.profile.names import same_kernel, short_name
from musacoder_verifier.profile.occupancy import capability, occupancy
from musacoder_verifier.profile.work import Work
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifierSettings
from musacoder_verifier.stages.pair import Pair
from musacoder_verifier.stages.side import Deadline, number
from musacoder_verifier.verdict import Timing
from musacoder_verifier.worker import Worker, WorkerError

# Change it when the same graph may be counted otherwise.
_COUNT_VERSION = 1
_CEILINGS_SECONDS = 24 * 3600.0


async def profile(
    worker: Worker,
    pair: Pair,
    reference: Reference,
    backend: Backend,
    settings: VerifierSettings,
    versions: Mapping[str, str],
    timing: Timing,
    kernels: tuple[ProfiledKernel, ...],
    deadline: Deadline,
    hold: AbstractAsyncContextManager[bool],
    *,
    watch_host: bool,
) -> KernelProfile:
    """`kernels` as `with_resources` gives them; `hold` takes the device for a measurement;
    `watch_host`: it is the host that computes. StageStop where a side fails."""
    found = await work_of(
        worker,
        reference,
        settings.cache_dir,
        timeout=deadline.left(),
        sandbox=settings.sandbox,
    )
    seconds = 1e-3 * timing.candidate_ms
    ceilings = await ceilings_of(
        pair,
        settings.cache_dir,
        ceilings_key(backend, settings.thread_count, versions),
        found.work.matrix_dtype if found.work is not None else None,
        found.work.bytes_moved / seconds if found.work is not None else 0.0,
        deadline,
        hold,
    )
    seen = Observed(
        seconds=seconds,
        kernels=kernels,
        launches=sum(kernel.launches or 0 for kernel in kernels) or None,
        threads=timing.threads,
        busy_threads=await busy_threads(pair, deadline) if watch_host else None,
        notes=(f"nothing counted: {found.problem}",) if found.problem else (),
    )
    return judge(found.work, ceilings, seen)


@dataclass(frozen=True, slots=True)
class CountedWork:
    """`work` None: `problem` says why nothing could be counted."""

    work: Work | None
    problem: str | None = None


def counted(graph: Mapping[str, Any] | None, error: str | None) -> CountedWork:
    """The work of an exported graph (docs/graph.md)."""
    if graph is None:
        return CountedWork(None, error or "there is no operator graph")
    try:
        return CountedWork(working.count(graph))
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        return CountedWork(None, f"the operator graph cannot be counted: {problem!r}")


def work_key(reference: Reference, torch_version: str) -> str:
    return content_key(_COUNT_VERSION, reference.key, torch_version)


def keep_work(cache_dir: Path, key: str, found: CountedWork) -> None:
    body = working.to_json(found.work) if found.work is not None else None
    _write(cache_dir / "work" / f"{key}.json", {"work": body, "problem": found.problem})


async def work_of(
    worker: Worker,
    reference: Reference,
    cache_dir: Path,
    *,
    timeout: float,
    sandbox: bool,
) -> CountedWork:
    """Counted before, or from a child that exports the Reference. Never raises."""
    key = work_key(reference, worker.info.torch_version)
    with suppress(KeyError, TypeError, ValueError):
        body = _read(cache_dir / "work" / f"{key}.json")
        if body is not None:
            known = body["work"]
            return CountedWork(
                working.from_json(known) if known is not None else None, body["problem"]
            )
    try:
        exported = await probe.export(worker, reference, timeout=timeout, sandbox=sandbox)
    except WorkerError as error:
        return CountedWork(None, str(error))
    found = counted(exported.graph, exported.error)
    keep_work(cache_dir, key, found)
    return found


async def ceilings_of(
    pair: Pair,
    cache_dir: Path,
    key: str,
    dtype: str | None,
    reached: float,
    deadline: Deadline,
    hold: AbstractAsyncContextManager[bool],
) -> Ceilings:
    """Measured within a day, or now while `hold` holds the device; none where it is in use.

    Other work on the machine only ever makes a measurement too low. So the best one counts, and
    one that a Candidate beats, with the bytes a second that it `reached`, is made again.
    """
    path = cache_dir / "ceilings" / f"{key}.json"
    kept = Ceilings()
    with suppress(KeyError, TypeError, ValueError):
        body = _read(path)
        if body is not None and 0.0 <= time.time() - body["measured"] < _CEILINGS_SECONDS:
            kept = _ceilings(body)
            known = dtype is None or dtype in body["tried"]
            if known and reached <= (kept.bytes_per_second or 0.0):
                return kept
    tried = sorted({*kept.matrix, *([dtype] if dtype is not None else [])})
    async with hold as held:
        if not held:
            return kept
        message = {"op": "ceilings", "dtypes": tried}
        answer = await pair.reference.ask(message, deadline, runs_user_code=False)
    best = _best(kept, _ceilings(answer))
    _write(path, {**asdict(best), "tried": tried, "measured": time.time()})
    return best


def _best(one: Ceilings, other: Ceilings) -> Ceilings:
    names = {*one.matrix, *other.matrix}
    return Ceilings(
        max(one.bytes_per_second or 0.0, other.bytes_per_second or 0.0),
        {n: max(one.matrix.get(n, 0.0), other.matrix.get(n, 0.0)) for n in sorted(names)},
        other.multiprocessors,
    )


def _ceilings(body: Mapping[str, Any]) -> Ceilings:
    count = body["multiprocessors"]
    return Ceilings(
        float(body["bytes_per_second"]),
        {str(name): float(rate) for name, rate in body["matrix"].items()},
        int(count) if count is not None else None,
    )


def ceilings_key(backend: Backend, threads: int, versions: Mapping[str, str]) -> str:
    named = [versions.get(name) for name in ("torch", "driver", "tf32")]
    return content_key(backend.name, backend.device_name(), threads, *named)


async def busy_threads(pair: Pair, deadline: Deadline) -> float:
    """Threads of the host at work during a call. StageStop where the Candidate fails."""
    message = {"op": "busy_threads", "seed": pair.seed}
    answer = await pair.candidate.ask(message, deadline, "being profiled")
    try:
        return number(answer["threads"])
    except (KeyError, TypeError) as error:
        raise pair.candidate.nonsense(deadline, error) from error


def with_resources(
    launched: Sequence[ProfiledKernel], resources: Iterable[KernelResources]
) -> tuple[ProfiledKernel, ...]:
    """What ran, with what the compiler says of it; what the compiler reported and nobody saw run
    comes where nothing was seen at all."""
    reported = list(resources)
    if not launched:
        return tuple(_reported(found) for found in reported)
    joined = []
    for kernel in launched:
        found = next((item for item in reported if same_kernel(item.symbol, kernel.name)), None)
        shown = replace(kernel, name=short_name(kernel.name))
        joined.append(_joined(shown, found) if found is not None else shown)
    return tuple(joined)


def _reported(found: KernelResources) -> ProfiledKernel:
    return ProfiledKernel(
        short_name(found.symbol),
        registers=found.registers,
        shared_bytes=found.shared_bytes,
        spill_bytes=found.spill_store_bytes,
    )


def _joined(kernel: ProfiledKernel, found: KernelResources) -> ProfiledKernel:
    shared = kernel.shared_bytes if kernel.shared_bytes is not None else found.shared_bytes
    filled = replace(
        kernel,
        registers=found.registers,
        shared_bytes=shared,
        spill_bytes=found.spill_store_bytes,
    )
    architecture = capability(found.architecture)
    if filled.threads is None or architecture is None:
        return filled
    held = occupancy(architecture, filled.threads, found.registers, shared)
    if held is None:
        return filled
    return replace(filled, occupancy=held.fraction, occupancy_limiter=held.limiter)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _write(path: Path, body: Mapping[str, Any]) -> None:
    with suppress(OSError):  # an unwritable cache costs time, not the Verdict
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(body), encoding="utf-8")
        part.replace(path)
