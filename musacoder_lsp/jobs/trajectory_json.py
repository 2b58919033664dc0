"""Trajectory to JSON and back, for the store and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from musacoder_verifier import verdict_json
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.verdict import Failure

from musacoder_lsp.assistant import Trajectory, Turn


def to_json(trajectory: Trajectory) -> dict[str, Any]:
    """`turns` with their sources, so that nothing is lost when a generated file is deleted; `best`
    is an index into them."""
    best = trajectory.best
    return {
        "engine": trajectory.engine,
        "model": trajectory.model,
        "label": trajectory.label,
        "retriable": trajectory.retriable,
        "reason": trajectory.reason,
        "failure": asdict(trajectory.failure) if trajectory.failure is not None else None,
        "best": trajectory.turns.index(best) if best is not None else None,
        "turns": [
            {
                "turn": turn.number,
                "candidate": _candidate_json(turn.candidate),
                "verdict": verdict_json.to_json(turn.verdict),
            }
            for turn in trajectory.turns
        ],
    }


def from_json(body: Mapping[str, Any]) -> Trajectory:
    """Raises ValueError where the text is of another schema."""
    try:
        turns = tuple(
            Turn(
                item["turn"],
                _candidate(item["candidate"]),
                verdict_json.from_json(item["verdict"]),
            )
            for item in body["turns"]
        )
        best = body["best"]
        return Trajectory(
            turns=turns,
            best=None if best is None else turns[best],
            reason=body["reason"],
            engine=body["engine"],
            model=body["model"],
            label=body["label"],
            retriable=body["retriable"],
            failure=Failure(**body["failure"]) if body.get("failure") else None,
        )
    except (KeyError, IndexError, TypeError) as problem:
        raise ValueError(f"this is not a Trajectory: {problem}") from problem


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    provenance = candidate.provenance
    return {
        "source": candidate.source,
        "path": candidate.path,
        "engine": provenance.engine,
        "model": provenance.model,
        "prompt_version": provenance.prompt_version,
        "sampling": dict(provenance.sampling),
        "turn": provenance.turn,
        "parent": provenance.parent,
    }


def _candidate(body: Mapping[str, Any]) -> Candidate:
    provenance = Provenance(
        engine=body["engine"],
        model=body["model"],
        prompt_version=body["prompt_version"],
        sampling=body["sampling"],
        turn=body["turn"],
        parent=body["parent"],
    )
    return Candidate(body["source"], body["path"], provenance)
