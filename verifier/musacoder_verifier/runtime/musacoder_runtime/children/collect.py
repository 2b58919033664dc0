"""Collect child: what a Candidate asks to be compiled, known by importing it under a recorder.

Answers `{"requests": [...], "hints": [...], "problem": None or {...}, "lazy": where}`. Sources that
the Candidate computes are known this way without a compiler having run; where nothing is asked
for at import, ModelNew is constructed, then run once, up to the first call of an extension.
"""

from __future__ import annotations

import ast
from typing import Any, Callable, Optional

from musacoder_runtime import failure, lint, module_source, recorder, reference_module
from musacoder_runtime.channel import Channel
from musacoder_runtime.source_positions import SourcePositions

_NAME = "musacoder_candidate"


def main(channel: Channel, spec: dict[str, Any]) -> None:
    """`spec`: `source` and `path` of the Candidate, `reference` (see `reference_module`)."""
    source, path = spec["source"], spec["path"]
    answer: dict[str, Any] = {"hints": [vars(hint) for hint in lint.hints(source)], "lazy": None}
    recording = recorder.Recorder()
    recorder.install(recording.answer)
    answer["problem"] = _parse(source, path) or _collect(source, spec, recording, answer)
    positions = SourcePositions(source)
    for request in recording.requests:
        for text in request["sources"]:
            place = positions.find(text["text"])
            text["line"] = place.line if place else None
            text["column"] = place.column if place else None
            text["escaped"] = place.escaped if place else False
    answer["requests"] = recording.requests
    channel.send(answer)


def _parse(source: str, path: str) -> Optional[dict[str, Any]]:
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        return {
            "kind": "syntax",
            "message": error.msg,
            "line": error.lineno or 1,
            "column": error.offset or 1,
            "traceback": "",
        }
    except ValueError as error:  # null bytes, before Python 3.12
        return {"kind": "syntax", "message": str(error), "line": 1, "column": 1, "traceback": ""}
    # A class made by other means than a definition shows after the import.
    if lint.model_new(tree) is None and "ModelNew" not in source:
        return _no_model_new()
    return None


def _no_model_new() -> dict[str, Any]:
    message = "the Candidate defines no class ModelNew"
    return {"kind": "no-model-new", "message": message, "line": 1, "column": 1, "traceback": ""}


def _collect(
    source: str, spec: dict[str, Any], recording: recorder.Recorder, answer: dict[str, Any]
) -> Optional[dict[str, Any]]:
    found: dict[str, Any] = {}

    def load() -> None:
        found["module"] = module_source.load(source, spec["path"], _NAME)

    problem = _attempt("import", load, spec["path"])
    if problem is not None or "module" not in found:
        return problem
    if not hasattr(found["module"], "ModelNew"):
        return _no_model_new()
    if recording.requests or "load" not in source:
        return None

    def construct() -> None:
        found["reference"] = reference_module.load(spec["reference"])
        found["model"] = reference_module.construct(
            found["reference"], reference_module.SEED, found["module"].ModelNew
        )

    def run() -> None:
        found["model"](*reference_module.inputs(found["reference"], reference_module.SEED))

    for where, step in (("__init__", construct), ("forward", run)):
        # Whatever fails here fails again, with better words, in the candidate child.
        _attempt(where, step, spec["path"])
        if recording.requests or "model" not in found:
            answer["lazy"] = where if recording.requests else None
            break
    return None


def _attempt(where: str, step: Callable[[], None], path: str) -> Optional[dict[str, Any]]:
    try:
        step()
    except recorder.NotCompiledYetError:
        return None  # far enough: what is called was recorded
    except BaseException as error:
        described = failure.describe(error)
        lines = [frame["line"] for frame in described["frames"] if frame["file"] == path]
        return {
            "kind": where,
            "message": f"{described['type']}: {described['message']}",
            "line": lines[-1] if lines else None,
            "column": 1,
            "traceback": described["traceback"],
        }
    return None
