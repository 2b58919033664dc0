"""Which operators a call dispatches, on all threads: the profiler's view, outermost events only.

A listed operator may have unlisted children (`reshape` -> `_unsafe_view`), so an `aten::` event
inside another `aten::` event is its parent's doing. The profiler's own bindings are taken before
any Candidate is imported, and its Python front end is not used: it costs seconds to import.

What the profiler sees can be switched off. So recording is switched on before a call and a sentinel
operator on either side of it must be seen; and some runs also stand under a dispatch mode, which
does not depend on recording: what it sees and the profiler does not is reported as an operator too.
Neither sees an operator that machine code runs with both switched off and on again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Event:
    name: str
    thread: int
    start: int  # ns
    end: int


@dataclass(frozen=True)
class Capture:
    """`reason` says why nothing can be said; then `operators` is empty."""

    operators: tuple[str, ...] = ()  # outermost operators, in order, with repetitions
    custom: tuple[str, ...] = ()  # outermost operators that the Candidate's extensions registered
    reason: Optional[str] = None
    muted: bool = False  # recording did not outlive the call


# Seldom used, and of no effect.
_SENTINEL = "aten::signbit"


def registered() -> frozenset[str]:
    """The names of all operators that the dispatcher knows, without their overloads."""
    return frozenset(name.split(".")[0] for name in torch._C._dispatch_get_all_op_names())


class _Shadow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The names of operators of this thread that give a tensor, as the dispatcher runs them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()
        self.raised: Optional[BaseException] = None  # by the last operator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch's own default wraps the method below so that its first call imports torch._dynamo:
        # seconds, for the sake of a compiler that nothing here uses.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.raised = None
        try:
            result = func(*args, **(kwargs or {}))
        except BaseException as error:
            self.raised = error
            raise
        if isinstance(result, (torch.Tensor, tuple, list)):
            self.names.add(func._schema.name)
        return result


class OperatorGate:
    """Profiles one call at a time. Where the profiler fails, captures say so; calls go on.

    `own` are names of operators that the Candidate's extensions registered."""

    # No instance attribute can stand before a method.
    __slots__ = (
        "_activities",
        "_config",
        "_disable",
        "_enable",
        "_prepare",
        "_probe",
        "_reason",
        "_record",
        "_signbit",
        "own",
    )  # fmt: skip

    def __init__(self) -> None:
        self.own: set[str] = set()
        self._reason: Optional[str] = None
        self._probe, self._signbit = torch.zeros(1), torch.signbit
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
            self._record: Callable[[bool], None] = _autograd._enable_record_function
        except (ImportError, AttributeError, TypeError) as error:
            self._reason = f"torch {torch.__version__} cannot profile all threads: {error}"

    def run(self, function: Callable[[], Any], shadow: bool = False) -> tuple[Any, Capture]:
        """(function(), what it dispatched). An exception of `function` passes through. `shadow`:
        under a dispatch mode, too."""
        if self._reason is None:
            self._reason = self._start()
        if self._reason is not None:
            return function(), Capture(reason=self._reason)
        mode = _Shadow() if shadow else None
        try:
            self._signbit(self._probe)
            with mode if mode is not None else contextlib.nullcontext():
                result = function()
            self._signbit(self._probe)
        except BaseException as error:
            self._disable()
            raised = mode.raised if mode is not None else None
            if raised is not None and type(error) is RuntimeError and error.args in ((), ("",)):
                # Machine code that calls an operator under a mode sees what Python raised as a C++
                # exception without a text, and pybind11 passes on that.
                raise raised.with_traceback(error.__traceback__) from None
            raise
        finally:
            self._record(True)
        try:
            events = [
                Event(e.name(), e.start_thread_id(), e.start_ns(), e.start_ns() + e.duration_ns())
                for e in self._disable().events()
            ]
        except (RuntimeError, AttributeError) as error:
            return result, Capture(reason=f"the profiler gave no events: {error}")
        return result, self._captured(events, mode)

    def _captured(self, events: list[Event], mode: Optional[_Shadow]) -> Capture:
        found = outermost(events, self.own, _foreign(self.own))
        operators = list(found.operators)
        sentinels = operators.count(_SENTINEL)
        for _ in range(min(sentinels, 2)):
            operators.remove(_SENTINEL)
        if mode is not None:
            recorded = {event.name for event in events}
            operators += sorted(mode.names - recorded - self.own)
        return Capture(tuple(operators), found.custom, muted=sentinels < 2)

    def _start(self) -> Optional[str]:
        try:
            self._record(True)
            self._prepare(self._config, self._activities)
            self._enable(self._config, self._activities)
        except (RuntimeError, TypeError) as error:
            return f"the profiler does not start: {error}"
        return None


def _foreign(own: set[str]) -> frozenset[str]:
    """Operators outside `aten` that are neither the Candidate's extensions' own nor defined in
    Python, where what they call is seen by itself."""
    defined = {name.split(".")[0] for name in torch.library._defs}
    return frozenset(name for name in registered() - own - defined if not name.startswith("aten::"))


def outermost(
    events: Iterable[Event], own: Iterable[str] = (), foreign: Iterable[str] = ()
) -> Capture:
    """The operators that are not inside another operator of the same thread. `own` operators are
    listed apart; what they call is listed like everything else."""
    mine, others = frozenset(own), frozenset(foreign)
    operators: list[str] = []
    custom: list[str] = []
    open_until: dict[int, int] = {}
    ordered = sorted(events, key=lambda event: (event.start, -event.end))
    for event in ordered:
        if event.name.startswith("aten::") or event.name in others:
            if event.start >= open_until.get(event.thread, -1):
                operators.append(event.name)
                open_until[event.thread] = event.end
        elif event.name in mine:
            custom.append(event.name)
    return Capture(tuple(operators), tuple(custom))
