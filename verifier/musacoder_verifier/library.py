"""The verifier as a library: `verify(reference, candidate)` returns a Verdict.

For batches, `async with Verifier(...)` and `Verifier.verify_many`; see docs/library.md.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import tokenize
from pathlib import Path
from typing import Any

from musacoder_verifier import workload as workloads
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference, SourceLine
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier
from musacoder_verifier.workload import Workload


def verify(
    reference: str | Path | Reference,
    candidate: str | Path | Candidate,
    workload: Workload | str | None = None,
    backend: str = "cpu",
    *,
    settings: VerifierSettings | None = None,
    **options: Any,
) -> Verdict:
    """Compile, check, police and time `candidate` against `reference`.

    Both are paths, or the text of a Python module (any string with a line break). `workload`
    replaces the Reference's `get_inputs`; as text it is such as `x f32[1024, 4096], n 3`. `options`
    are the fields of VerifyOptions. Raises OSError for a file that cannot be read, TypeError for an
    unknown option, ValueError for a Workload that is none; whatever the code does is in the
    Verdict. May be called where an event loop runs, such as a notebook; then that loop waits.
    """
    chosen = VerifyOptions(backend=backend, **options)
    ours = as_reference(reference, workload)
    theirs = as_candidate(candidate)

    async def once() -> Verdict:
        async with Verifier(settings) as verifier:
            return await verifier.verify(ours, theirs, chosen)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(once())
    answer: list[Verdict] = []
    thread = threading.Thread(target=lambda: answer.append(asyncio.run(once())))
    thread.start()
    thread.join()
    return answer[0]


def as_reference(
    given: str | Path | Reference,
    workload: Workload | str | None = None,
    *,
    training: bool = False,
) -> Reference:
    """A Reference from a path, a text or a Reference. Modules beside a file can be imported by it.
    Raises OSError and ValueError, see `verify`."""
    reference = given if isinstance(given, Reference) else _read(given, training)
    if workload is None:
        return reference
    made = workloads.parse(workload, training=reference.training) if isinstance(
        workload, str
    ) else workload  # fmt: skip
    source = f"{reference.source.rstrip()}\n\n\n{workloads.get_inputs_source(made)}"
    return dataclasses.replace(reference, source=source, training=made.training)


def as_candidate(given: str | Path | Candidate) -> Candidate:
    """A Candidate from a path, a text or a Candidate. Raises OSError."""
    if isinstance(given, Candidate):
        return given
    text, path = _text(given)
    return Candidate(text, str(path) if path is not None else None)


def _read(given: str | Path, training: bool) -> Reference:
    text, path = _text(given)
    if path is None:
        return Reference(text, training=training)
    lines = tuple(SourceLine(str(path), number) for number in range(text.count("\n") + 1))
    return Reference(text, str(path), lines, (str(path.parent),), training)


def _text(given: str | Path) -> tuple[str, Path | None]:
    if isinstance(given, str) and "\n" in given:
        return given, None
    path = Path(given).resolve()
    with tokenize.open(path) as file:  # honours a coding line
        return file.read(), path
