"""The two children of a Verdict, started together and gone together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from musacoder_verifier.build_request import Artefact
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.limits import Limits
from musacoder_verifier.memory_file import MemoryFile
from musacoder_verifier.reference import Reference
from musacoder_verifier.stages.side import CandidateSide, InfraFault, ReferenceSide, Turns
from musacoder_verifier.worker import Worker

# Memory files are sparse: this bounds what fits, not what is taken.
_OUTPUT_BYTES = 1 << 36


@dataclass(frozen=True, slots=True)
class PairSettings:
    device: str  # module of musacoder_runtime.devices
    threads: int
    seed: int
    seconds: float  # for the whole life of both children
    sandbox: bool = True
    memory_bytes: int | None = None
    file_bytes: int | None = None
    tf32: str = "off"  # see musacoder_runtime.precision
    host_inputs: bool = False  # inputs of the CPU's generator, whatever the device


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides, and the seed that the first inputs are made from."""

    reference: ReferenceSide
    candidate: CandidateSide
    seed: int
    take_turns: bool = False


def reference_spec(reference: Reference) -> dict[str, Any]:
    """What `musacoder_runtime.reference_module` needs."""
    return {
        "source": reference.source,
        "path": reference.path,
        "import_roots": list(reference.import_roots),
        "training": reference.training,
    }


@asynccontextmanager
async def start(
    worker: Worker,
    reference: Reference,
    candidate: Candidate,
    path: str,
    artefacts: Sequence[Artefact],
    settings: PairSettings,
    turns: Turns | None = None,
) -> AsyncIterator[Pair]:
    """Start both children; they are idle until asked. `turns`: they do not fit on the device
    together."""
    limits = Limits(
        seconds=settings.seconds,
        memory_bytes=settings.memory_bytes,
        file_bytes=settings.file_bytes,
    )
    # The user's own code may start processes (a data loader, a compiler of its own).
    trusted = Limits(seconds=settings.seconds, memory_bytes=settings.memory_bytes, processes="some")
    common = {
        "device": settings.device,
        "threads": settings.threads,
        "seed": settings.seed,
        "tf32": settings.tf32,
        "host_inputs": settings.host_inputs,
        "take_turns": turns is not None,
    }
    spec = {**common, "reference": reference_spec(reference)}
    served: Mapping[str, Any] = {item.request_key: asdict(item) for item in artefacts}
    async with AsyncExitStack() as stack:
        try:
            outputs = stack.enter_context(MemoryFile(_OUTPUT_BYTES, "musacoder-outputs"))
            state = stack.enter_context(MemoryFile(_OUTPUT_BYTES, "musacoder-state"))
        except OSError as error:
            raise InfraFault(
                f"no memory file of {_OUTPUT_BYTES >> 30} GiB can be made: {error.strerror}; raise "
                "the limit of file sizes (ulimit -f) or free memory"
            ) from error
        fds = (outputs.fd, state.fd)
        judge = await stack.enter_async_context(
            worker.child("reference", spec, limits=trusted, sandbox=settings.sandbox, fds=fds)
        )
        checked = await stack.enter_async_context(
            worker.child(
                "candidate",
                {**spec, "source": candidate.source, "path": path, "artefacts": served},
                limits=limits,
                sandbox=settings.sandbox,
                fds=fds,
            )
        )
        try:
            yield Pair(
                ReferenceSide(judge, reference, turns),
                CandidateSide(checked, path, turns),
                settings.seed,
                turns is not None,
            )
        finally:
            worker.end_soon(judge)  # so that both end at the same time
