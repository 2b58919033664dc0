"""Verdict to JSON and back.

JSON has no NaN and no infinity, and an error may be either: such numbers are written as the
strings "NaN", "Infinity" and "-Infinity". Keys that this version does not know are ignored when
reading, so that an older reader still shows a newer result.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from musacoder_verifier.kernel_resources import KernelResources
from musacoder_verifier.profile import kernel_profile
from musacoder_verifier.verdict import (
    SCHEMA_VERSION,
    CompileReport,
    Correctness,
    Diagnostic,
    Failure,
    Finding,
    Legality,
    LikeKernelBench,
    StageReport,
    Timing,
    Verdict,
)
from musacoder_verifier.workload import InputSpec, Workload

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(verdict: Verdict) -> dict[str, Any]:
    """The object that `musacoder verify --json` prints; only JSON types, no NaN."""
    body: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for field in dataclasses.fields(verdict):
        body[field.name] = _plain(getattr(verdict, field.name))
    body["stages"] = {
        name: {"seconds": _plain(report.seconds), **_plain(report.detail)}
        for name, report in verdict.stages.items()
    }
    return body


def from_json(body: Mapping[str, Any]) -> Verdict:
    """The inverse of `to_json`. Raises ValueError for another schema or a missing key."""
    if body.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"this Verdict has schema {body.get('schema_version')!r}, not 1")
    try:
        return _verdict(body)
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is not a Verdict: {error}") from error


def _verdict(body: Mapping[str, Any]) -> Verdict:
    known = _known(Verdict, body)
    known["stages"] = {name: _stage(report) for name, report in body["stages"].items()}
    known["failure"] = _optional(Failure, body.get("failure"))
    known["compile"] = _compile(body.get("compile"))
    known["correctness"] = _correctness(body.get("correctness"))
    known["legality"] = _legality(body.get("legality"))
    known["timing"] = _timing(body.get("timing"))
    known["profile"] = kernel_profile.from_json(body.get("profile"))
    known["workload"] = _workload(body.get("workload"))
    known["not_checked"] = tuple(body["not_checked"])
    known["versions"] = dict(body["versions"])
    known["sandbox"] = dict(body.get("sandbox", {}))
    known["reward"] = _number(body.get("reward"))
    return Verdict(**known)


def _plain(value: Any) -> Any:
    """`value` with dataclasses, mappings and tuples turned into JSON's types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _known(cls: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(cls)}
    return {key: value for key, value in body.items() if key in names}


def _number(value: Any) -> Any:
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _optional(cls: Any, body: Mapping[str, Any] | None) -> Any:
    return None if body is None else cls(**_known(cls, body))


def _stage(body: Mapping[str, Any]) -> StageReport:
    detail = {key: value for key, value in body.items() if key != "seconds"}
    return StageReport(seconds=_number(body["seconds"]), detail=detail)


def _compile(body: Mapping[str, Any] | None) -> CompileReport | None:
    if body is None:
        return None
    known = _known(CompileReport, body)
    known["resources"] = tuple(
        KernelResources(**_known(KernelResources, item)) for item in body.get("resources", ())
    )
    known["flags"] = tuple(body.get("flags", ()))
    known["diagnostics"] = tuple(_diagnostic(item) for item in body.get("diagnostics", ()))
    return CompileReport(**known)


def _diagnostic(body: Mapping[str, Any]) -> Diagnostic:
    known = _known(Diagnostic, body)
    known["related"] = tuple(
        (str(file), int(line), int(column), str(message))
        for file, line, column, message in body.get("related", ())
    )
    return Diagnostic(**known)


def _correctness(body: Mapping[str, Any] | None) -> Correctness | None:
    if body is None:
        return None
    known = _known(Correctness, body)
    for name in (
        "max_abs_error",
        "max_rel_error",
        "candidate_fp64_error",
        "reference_fp64_error",
    ):
        if name in known:
            known[name] = _number(known[name])
    known["kernelbench"] = _like_kernelbench(body.get("kernelbench"))
    return Correctness(**known)


def _like_kernelbench(body: Mapping[str, Any] | None) -> LikeKernelBench | None:
    if body is None:
        return None
    known = _known(LikeKernelBench, body)
    for name in ("max_difference", "avg_difference"):
        known[name] = tuple(_number(value) for value in body.get(name, ()))
    return LikeKernelBench(**known)


def _legality(body: Mapping[str, Any] | None) -> Legality | None:
    if body is None:
        return None
    return Legality(
        verdict=body["verdict"],
        findings=tuple(Finding(**_known(Finding, item)) for item in body.get("findings", ())),
        operators=tuple(body.get("operators", ())),
    )


def _timing(body: Mapping[str, Any] | None) -> Timing | None:
    if body is None:
        return None
    known = {key: _number(value) for key, value in _known(Timing, body).items()}
    for name in ("ci95", "ci95_compile"):
        if known.get(name) is not None:
            low, high = known[name]
            known[name] = (_number(low), _number(high))
    for name in ("spread", "roofline", "host_ms", "conditions"):
        known[name] = {key: _number(value) for key, value in body.get(name, {}).items()}
    known["statistics"] = {
        side: {key: _number(value) for key, value in figures.items()}
        for side, figures in body.get("statistics", {}).items()
    }
    known["notes"] = tuple(body.get("notes", ()))
    return Timing(**known)


def _workload(body: Mapping[str, Any] | None) -> Workload | None:
    if body is None:
        return None
    inputs = []
    for item in body["inputs"]:
        known = _known(InputSpec, item)
        known["shape"] = tuple(item.get("shape", ()))
        known["stride"] = tuple(item.get("stride", ()))
        known["low"], known["high"] = _number(item.get("low")), _number(item.get("high"))
        inputs.append(InputSpec(**known))
    return Workload(
        origin=body["origin"], inputs=tuple(inputs), training=body.get("training", False)
    )
