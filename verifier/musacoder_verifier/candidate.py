"""Candidate: one generated module with `class ModelNew`, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Provenance:
    engine: str  # "synth", "openai", "transformers", "hand" (a person's edit), "file"
    model: str | None = None  # None: no model wrote it
    prompt_version: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    turn: int = 1
    parent: str | None = None  # key of the Candidate that this one repairs


@dataclass(frozen=True, slots=True)
class Candidate:
    """`path` is the file that holds `source`; diagnostics and findings speak of its lines."""

    source: str
    path: str | None = None
    provenance: Provenance = Provenance(engine="file")

    @property
    def key(self) -> str:
        return hashlib.sha256(self.source.encode("utf-8", "surrogatepass")).hexdigest()
