"""A Job: background work on a Site, with state, progress and cancel."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Literal

JobKind = Literal["generate", "repair", "verify"]
JobState = Literal[
    "queued",
    "exporting",
    "generating",
    "preparing",
    "compiling",
    "checking",
    "timing",
    "comparing",
    "waiting",
    "done",
    "failed",
    "cancelled",
]
ENDED: frozenset[JobState] = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class SiteKey:
    """One Site of one document, across edits; `document` is the client's own URI."""

    document: str
    site: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """`since` is the loop's clock, in seconds, when this state began. `detail` is one short phrase
    (a device for `waiting`, a sentence for `failed`). `speedup` is what is known against eager
    while `comparing` with torch.compile."""

    state: JobState
    since: float
    turn: int = 1
    of: int = 1
    detail: str = ""
    tokens_per_second: float | None = None
    speedup: float | None = None


@dataclass(slots=True, eq=False)
class Job:
    """`cause` says in words why it runs, such as `asked by the user` or `file saved`."""

    key: SiteKey
    kind: JobKind
    cause: str
    status: JobStatus
    title: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def ended(self) -> bool:
        return self.status.state in ENDED
