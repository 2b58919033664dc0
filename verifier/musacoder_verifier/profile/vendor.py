"""A vendor's profiler around one call of a verified Candidate.

It runs as the user and asks for no further rights. A profiler must reach into the process that it
watches, which a sandbox forbids: so only a Candidate whose Verdict is `ok` comes here, under the
limits of `musacoder_runtime.profiled` and without the sandbox's walls.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from musacoder_verifier import measurement_lock, tools
from musacoder_verifier.backends import registry
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.build_request import Artefact
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.profile.counters import METRICS, CountedLaunch, NoCounters, parse
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.stages import collect
from musacoder_verifier.stages import compile as compiling
from musacoder_verifier.stages.pair import reference_spec
from musacoder_verifier.worker import RUNTIME, Worker

# In the user's interpreter: arguments are the runtime's folder and the file that says what to run.
_RUN = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from musacoder_runtime.profiled import run; run(sys.argv[2])"
)
# Each launch is run again for each group of counters.
_MOST_LAUNCHES = 64
_NCU_FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute", "/usr/local/bin")


@dataclass(frozen=True, slots=True)
class VendorProfiler:
    """`command` makes an argument list of (program, file for its output, what to run). `parses`:
    its output is read here; else its report is for its own viewer."""

    program: str
    command: Callable[[str, Path, Sequence[str]], list[str]]
    parses: bool


def _ncu(program: str, log: Path, run: Sequence[str]) -> list[str]:
    """Clocks as they are: locking them needs rights, and the timing ran without."""
    return [
        program, "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS),
        "--clock-control", "none", "--profile-from-start", "off",
        "--launch-count", str(_MOST_LAUNCHES), "--log-file", str(log), *run,
    ]  # fmt: skip


def _mcu(program: str, log: Path, run: Sequence[str]) -> list[str]:
    return [program, "-o", str(log), *run]


def _msys(program: str, log: Path, run: Sequence[str]) -> list[str]:
    return [program, "profile", "--trace=musa", "-o", str(log), *run]


# By the runtime's name of the device; the first that is installed is used. The two of Moore Threads
# are started as their manual says and have not been tried: their output is not read.
PROFILERS: Mapping[str, tuple[VendorProfiler, ...]] = {
    "cuda": (VendorProfiler("ncu", _ncu, True),),
    "musa": (VendorProfiler("mcu", _mcu, False), VendorProfiler("msys", _msys, False)),
}


def installed(backend: Backend) -> tuple[VendorProfiler, str]:
    """The profiler for a Backend and its path. Raises NoCounters."""
    known = PROFILERS.get(backend.runtime_device, ())
    for profiler in known:
        path = _program(profiler.program)
        if path is not None:
            return profiler, path
    if not known:
        raise NoCounters(f"hardware counters are not read on {backend.label}")
    names = " or ".join(profiler.program for profiler in known)
    raise NoCounters(f"{names} is not installed; put it on PATH to read hardware counters")


def _program(name: str) -> str | None:
    found = shutil.which(name)
    if found is not None:
        return found
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [*([f"{home}/bin"] if home else []), *_NCU_FOLDERS]
    for folder in folders:
        for path in (Path(folder) / name, *sorted(Path(folder).glob(f"*/{name}"), reverse=True)):
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
    return None


async def count(
    worker: Worker,
    settings: VerifierSettings,
    reference: Reference,
    candidate: Candidate,
    options: VerifyOptions,
) -> tuple[CountedLaunch, ...]:
    """The hardware counters of each launch of one call, on a device that nobody else measures on.

    What was compiled for the Verdict is used again. Raises NoCounters.
    """
    backend = registry.backend(options.backend)
    profiler, program = installed(backend)
    timeout = options.stage_timeout or settings.stage_timeout
    artefacts = await _artefacts(worker, settings, backend, reference, candidate, options)
    spec = {
        "source": candidate.source,
        "path": candidate.path or "<candidate>",
        "reference": reference_spec(reference),
        "artefacts": {item.request_key: asdict(item) for item in artefacts},
        "device": backend.runtime_device,
        "threads": settings.thread_count,
        "seed": options.seed,
        "tf32": options.tf32,
        "memory_bytes": settings.memory_bytes,
        "file_bytes": settings.output_file_bytes,
    }
    with tempfile.TemporaryDirectory(prefix="musacoder-profile-") as name:
        folder = Path(name)
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        log = folder / "counters"
        command = profiler.command(
            program,
            log,
            # Unbuffered: the last line that it prints is taken for the reason.
            [settings.python, "-u", "-c", _RUN, str(RUNTIME), str(folder / "spec.json")],
        )
        output = await _run(command, folder, timeout, settings, backend)
        if not profiler.parses:
            raise NoCounters(_kept(profiler, folder, settings.cache_dir))
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return parse(text if text.strip() else output)


async def _run(
    command: Sequence[str], folder: Path, timeout: float, settings: VerifierSettings, backend: Any
) -> str:
    async with measurement_lock.hold(
        settings.lock_folder, backend.lock_name(), lambda: None, timeout
    ) as held:
        if not held:
            raise NoCounters(f"{backend.label} was in use for {timeout:g} s")
        try:
            done = await tools.run(
                command,
                cwd=folder,
                timeout=timeout,
                environment={**backend.environment(), "TMPDIR": str(folder)},
                niceness=0,
            )
        except tools.ToolError as error:
            raise NoCounters(str(error)) from error
    if done.timed_out:
        raise NoCounters(f"{Path(command[0]).name} did not finish within {timeout:g} s")
    return done.output


def _kept(profiler: VendorProfiler, folder: Path, cache_dir: Path) -> str:
    """Keep the report of a profiler whose output is not read here, and say where."""
    target = cache_dir / "profiles" / folder.name
    target.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name.startswith("counters"):
            shutil.move(str(path), target / path.name)
    if not any(target.iterdir()):
        return f"{profiler.program} left no report"
    return f"{profiler.program} wrote its report to {target}; open it with its own viewer"


async def _artefacts(
    worker: Worker,
    settings: VerifierSettings,
    backend: Backend,
    reference: Reference,
    candidate: Candidate,
    options: VerifyOptions,
) -> tuple[Artefact, ...]:
    timeout = options.stage_timeout or settings.stage_timeout
    collected = await collect.collect(
        worker,
        candidate,
        reference_spec(reference),
        path=candidate.path or "<candidate>",
        timeout=timeout,
        sandbox=settings.sandbox,
        memory_bytes=settings.memory_bytes,
    )
    built = await compiling.compile_requests(
        collected.requests,
        backend=backend,
        worker_info=worker.info,
        cache_dir=settings.cache_dir,
        candidate=candidate,
        timeout=timeout,
        lane=options.lane,
    )
    failure = collected.failure or built.failure
    if failure is not None:
        raise NoCounters(failure.message)
    return built.artefacts
