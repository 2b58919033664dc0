"""The interface of an Engine and the plain data that crosses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

BackendName = Literal["cuda", "musa", "cpu", "emulator"]


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the last turn's Verdict says, in the words that a repair prompt needs."""

    status: str
    message: str
    detail: str = ""
    speedup: float | None = None
    # For an optimisation turn: what keeps a correct kernel slow, most useful first.
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """`graph` is the exported operator graph (docs/graph.md) or None where export failed;
    `graph_error` then says why, in one sentence."""

    reference: str
    backend: BackendName
    turn: int = 1
    samples: int = 1
    graph: Mapping[str, Any] | None = None
    graph_error: str | None = None
    previous: str | None = None  # source of the Candidate to repair
    feedback: Feedback | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Something to show while text is produced; figures are None where the engine has none."""

    message: str
    tokens: int | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """One complete module with `class ModelNew`."""

    source: str
    model: str | None = None
    prompt_version: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declined:
    """The engine has nothing for this request; `reason` is one line for the user."""

    reason: str


Event = Progress | Generated | Declined


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str:
        """How results are labelled, such as `synth (no model)`."""
        ...

    @property
    def max_turns(self) -> int:
        """How many turns make sense: 1 for an engine that always answers the same."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Yields Progress, then up to `samples` Generated or one Declined. Closing it cancels."""
        ...
