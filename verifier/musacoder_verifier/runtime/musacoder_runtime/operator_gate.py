"""Which operators a call dispatches, on all threads: the profiler's view, outermost events only.

A listed operator may have unlisted children (`reshape` -> `_unsafe_view`), so an `aten::` event
inside another `aten::` event is its parent's doing. The profiler's own bindings are taken before
any Candidate is imported, and its Python front end is not used: it costs seconds to import.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch


@dataclass(frozen=True)
class Event:
    name: str
    thread: int
    start: int  # ns
    end: int


@dataclass(frozen=True)
class Capture:
    """`reason` says why nothing can be said; then `operators` is empty."""

    operators: tuple[str, ...] = ()  # outermost aten events, in order, with repetitions
    custom: tuple[str, ...] = ()  # outermost events of other namespaces
    reason: Optional[str] = None


class OperatorGate:
    """Profiles one call at a time. Where the profiler fails, captures say so; calls go on."""

    def __init__(self) -> None:
        self._reason: Optional[str] = None
        try:
            from torch._C import _autograd, _profiler

            state = _profiler.ProfilerState.KINETO
            config = _profiler._ExperimentalConfig(profile_all_threads=True)
            self._config = _profiler.ProfilerConfig(
                state, False, False, False, False, False, config
            )
            self._activities = {_profiler.ProfilerActivity.CPU}
            self._prepare: Callable[..., Any] = _autograd._prepare_profiler
            self._enable: Callable[..., Any] = _autograd._enable_profiler
            self._disable: Callable[..., Any] = _autograd._disable_profiler
        except (ImportError, AttributeError, TypeError) as error:
            self._reason = f"torch {torch.__version__} cannot profile all threads: {error}"

    def run(self, function: Callable[[], Any]) -> tuple[Any, Capture]:
        """(function(), what it dispatched). An exception of `function` passes through."""
        if self._reason is None:
            self._reason = self._start()
        if self._reason is not None:
            return function(), Capture(reason=self._reason)
        try:
            result = function()
        except BaseException:
            self._disable()
            raise
        try:
            events = [
                Event(e.name(), e.start_thread_id(), e.start_ns(), e.start_ns() + e.duration_ns())
                for e in self._disable().events()
            ]
        except (RuntimeError, AttributeError) as error:
            return result, Capture(reason=f"the profiler gave no events: {error}")
        return result, outermost(events)

    def _start(self) -> Optional[str]:
        try:
            self._prepare(self._config, self._activities)
            self._enable(self._config, self._activities)
        except (RuntimeError, TypeError) as error:
            return f"the profiler does not start: {error}"
        return None


def outermost(events: Iterable[Event]) -> Capture:
    """The operators that are not inside another operator of the same thread."""
    operators: list[str] = []
    custom: list[str] = []
    open_until: dict[int, int] = {}
    ordered = sorted(events, key=lambda event: (event.start, -event.end))
    for event in ordered:
        if event.name.startswith("aten::"):
            if event.start >= open_until.get(event.thread, -1):
                operators.append(event.name)
                open_until[event.thread] = event.end
        elif "::" in event.name and " " not in event.name:
            custom.append(event.name)
    return Capture(tuple(operators), tuple(custom))
