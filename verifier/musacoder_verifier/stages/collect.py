"""Stage collect: what the Candidate asks to be compiled, and static hints about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from musacoder_verifier.build_request import BuildRequest, SourceText
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.limits import Limits
from musacoder_verifier.stages.side import CandidateSide, Deadline, StageStop
from musacoder_verifier.verdict import Diagnostic, Failure, Finding
from musacoder_verifier.worker import Worker

_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Collected:
    """`lazy` is `__init__` or `forward` where the Candidate compiles only there."""

    requests: tuple[BuildRequest, ...]
    hints: tuple[Finding, ...]
    lazy: str | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    failure: Failure | None = None


async def collect(
    worker: Worker,
    candidate: Candidate,
    reference: Mapping[str, Any],
    *,
    path: str,
    timeout: float,
    sandbox: bool = True,
    memory_bytes: int | None = None,
) -> Collected:
    """Import the Candidate in a child of its own, its compiler calls recorded.

    `reference` is the spec of `musacoder_runtime.reference_module`. Never raises for what the
    Candidate does; InfraFault and WorkerError pass through.
    """
    deadline = Deadline.start("collect", timeout)
    limits = Limits(seconds=timeout + 5.0, memory_bytes=memory_bytes, file_bytes=_FILE_BYTES)
    spec = {"source": candidate.source, "path": path, "reference": dict(reference)}
    async with worker.child("collect", spec, limits=limits, sandbox=sandbox) as child:
        side = CandidateSide(child, path)
        try:
            return _collected(await side.answer(deadline, "importing it"), path)
        except StageStop as stop:
            return Collected((), (), failure=stop.failure)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return Collected((), (), failure=side.nonsense(deadline, error).failure)


def _collected(answer: Mapping[str, Any], path: str) -> Collected:
    hints = tuple(
        Finding(
            str(hint["rule"]),
            str(hint["evidence"]),
            int(hint["line"]),
            "hint",
            path,
            int(hint["column"]),
        )
        for hint in answer["hints"]
    )
    requests = tuple(_request(item) for item in answer["requests"])
    failure: Failure | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    problem = answer["problem"]
    if problem is not None:
        failure = _failure(problem, path)
        if problem["kind"] == "syntax":
            diagnostics = (_diagnostic(problem, path),)
    return Collected(requests, hints, answer["lazy"], diagnostics, failure)


def _failure(problem: Mapping[str, Any], path: str) -> Failure:
    kind, message = problem["kind"], str(problem["message"])
    line = int(problem["line"]) if problem["line"] is not None else None
    if kind == "syntax":
        message = f"the Candidate is not valid Python: {message}"
    return Failure(
        "compile_error" if kind in ("syntax", "no-model-new") else "runtime_error",
        "collect",
        message,
        str(problem["traceback"]),
        path,
        line,
    )


def _diagnostic(problem: Mapping[str, Any], path: str) -> Diagnostic:
    return Diagnostic(
        path, int(problem["line"]), int(problem["column"]), "error", str(problem["message"])
    )


def _request(item: Mapping[str, Any]) -> BuildRequest:
    return BuildRequest(
        name=str(item["name"]),
        sources=tuple(
            SourceText(
                "cuda" if source["language"] == "cuda" else "cpp",
                str(source["text"]),
                source["line"],
                source["column"],
                bool(source["escaped"]),
            )
            for source in item["sources"]
        ),
        functions=tuple((str(name), str(text)) for name, text in item["functions"]),
        extra_cflags=tuple(map(str, item["extra_cflags"])),
        extra_cuda_cflags=tuple(map(str, item["extra_cuda_cflags"])),
        extra_ldflags=tuple(map(str, item["extra_ldflags"])),
        extra_include_paths=tuple(map(str, item["extra_include_paths"])),
        with_cuda=item["with_cuda"],
        is_python_module=bool(item["is_python_module"]),
        launches=str(item["launches"]) if item["launches"] is not None else None,
    )
