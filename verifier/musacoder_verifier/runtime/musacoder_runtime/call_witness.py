"""Was a function of a compiled extension really called? Seen by the interpreter, from outside.

No wrapper stands between the Candidate and its extension, so nothing is slower when it is timed.
"""

from __future__ import annotations

import sys
import threading
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Callable, Iterable

_set_profile = sys.setprofile


class CallWitness:
    """Counts calls of the functions of `extensions` while a function runs."""

    def __init__(self, extensions: Iterable[Any]) -> None:
        self._objects: set[int] = set()
        self._codes: set[Any] = set()
        self._counting: list[Any] = []  # functions of the fast lane, which count their calls
        self._kept: list[Any] = []  # an id means something only while its object lives
        self.complete = True
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
        if (event == "c_call" and id(argument) in self._objects) or (
            event == "call" and frame.f_code in self._codes
        ):
            self.calls += 1


def _members(extension: Any) -> list[Any]:
    names = dir(extension)
    skipped = set(dir(ModuleType("empty")))
    members = [getattr(extension, n, None) for n in names if n not in skipped]
    return [member for member in members if callable(member)]
