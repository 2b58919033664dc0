"""Was a function of a compiled extension really called? Seen by the interpreter, from outside.

No wrapper stands between the Candidate and its extension, so nothing is slower when it is timed.
"""

from __future__ import annotations

import sys
import threading
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Callable, Iterable

import torch

_set_profile = sys.setprofile
# Whoever calls one of these while it is watched switches a witness off.
_SWITCHES = {
    id(getattr(namespace, name)): f"{namespace.__name__}.{name}"
    for namespace, names in (
        (
            torch._C._autograd,
            ("_enable_record_function", "_enable_profiler", "_disable_profiler"),
        ),
        (torch._C, ("_pop_torch_dispatch_stack", "_push_on_torch_dispatch_stack")),
        (sys, ("setprofile",)),
    )
    for name in names
    if hasattr(namespace, name)
}
# These let a library that is not torch compute on tensors' memory.
_EXPORTS = frozenset({"numpy", "__dlpack__"})
_EXPORTING = {
    id(getattr(torch._C, name)): name for name in ("_to_dlpack",) if hasattr(torch._C, name)
}


class CallWitness:
    """Counts calls of the functions of `extensions` while a function runs."""

    __slots__ = (
        "_codes",
        "_counting",
        "_kept",
        "_objects",
        "calls",
        "complete",
        "exported",
        "switched",
    )  # fmt: skip

    def __init__(self, extensions: Iterable[Any]) -> None:
        self._objects: set[int] = set()
        self._codes: set[Any] = set()
        self._counting: list[Any] = []  # functions of the fast lane, which count their calls
        self._kept: list[Any] = []  # an id means something only while its object lives
        self.complete = True
        self.switched: set[str] = set()  # witnesses that were switched on or off meanwhile
        self.exported: set[str] = set()  # ways that tensors' memory went to other libraries
        for extension in extensions:
            for value in _members(extension):
                self._add(value)
        self.calls = 0

    def _add(self, value: Any) -> None:
        value = getattr(value, "__func__", value)
        self._kept.append(value)
        if isinstance(value, FunctionType):
            self._codes.add(value.__code__)
        elif isinstance(value, BuiltinFunctionType):
            self._objects.add(id(value))
        elif isinstance(getattr(value, "__calls__", None), int):
            self._counting.append(value)
        elif isinstance(value, type):
            for member in vars(value).values():
                if callable(member):
                    self._add(member)
        elif callable(value) and type(value).__name__ not in (
            "wrapper_descriptor",
            "instancemethod",
        ):
            self.complete = False

    def run(self, function: Callable[[], Any]) -> Any:
        """function(), its calls counted in this thread and in those that it starts."""
        before = sum(function.__calls__ for function in self._counting)
        threading.setprofile(self._see)
        _set_profile(self._see)
        try:
            return function()
        finally:
            _set_profile(None)
            threading.setprofile(None)
            self.calls += sum(function.__calls__ for function in self._counting) - before

    def _see(self, frame: Any, event: str, argument: Any) -> None:
        if event == "c_call":
            self._see_builtin(frame, argument)
        if (event == "c_call" and id(argument) in self._objects) or (
            event == "call" and frame.f_code in self._codes
        ):
            self.calls += 1

    def _see_builtin(self, frame: Any, function: Any) -> None:
        key = id(function)
        if key in _SWITCHES and frame.f_code not in _OURS:
            self.switched.add(_SWITCHES[key])
        elif key in _EXPORTING:
            self.exported.add(_EXPORTING[key])
        elif getattr(function, "__name__", None) in _EXPORTS and isinstance(
            getattr(function, "__self__", None), torch.Tensor
        ):
            self.exported.add(f"Tensor.{function.__name__}")


_OURS = frozenset({CallWitness.run.__code__})


def _members(extension: Any) -> list[Any]:
    names = dir(extension)
    skipped = set(dir(ModuleType("empty")))
    members = [getattr(extension, n, None) for n in names if n not in skipped]
    return [member for member in members if callable(member)]
