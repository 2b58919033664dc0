"""Why a Site gives no Reference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unbuildable:
    """`reason` is one sentence for the user; `missing` the names that an annotation must give."""

    reason: str
    missing: tuple[str, ...] = ()


class CannotBuild(Exception):
    """Raised inside the builders; `build_reference` turns it into an `Unbuildable`."""

    def __init__(self, reason: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.result = Unbuildable(reason, missing)
