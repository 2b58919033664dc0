"""What a Candidate's Python code asks the interpreter for that no kernel needs.

The interpreter announces walks through frames and the heap, foreign functions, and the opening of
files to hooks that cannot be removed. Only calls that stand in the Candidate's own code count:
torch and the standard library do the same for reasons of their own.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any

# event -> rule; policy says which condemn.
_SEARCHES = {
    "sys._getframe": "walks the frames of the interpreter",
    "sys._current_frames": "walks the frames of the interpreter",
    "gc.get_objects": "lists all objects of the process",
    "gc.get_referrers": "looks for who holds an object",
    "gc.get_referents": "looks for what an object holds",
    "ctypes.string_at": "reads memory at an address",
    "ctypes.wstring_at": "reads memory at an address",
    "object.__setattr__": "replaces the code of a function",
}
_FINDS = {"ctypes.dlopen": "opens a library", "ctypes.dlsym": "looks a function up"}
_SECRETS = ("/proc/self/mem", "/proc/thread-self/mem", "/proc/self/maps")
# Between the Candidate and the event these only pass on.
_PASSING = ("inspect.py", "ctypes" + os.sep + "__init__.py")


class AuditWatch:
    """Collects (rule, what) while `watching` is set."""

    __slots__ = ("_libraries", "_package", "found", "watching")

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        self._libraries = tuple({os.path.realpath(paths[k]) + os.sep for k in paths}) + tuple(
            {paths[k] + os.sep for k in ("stdlib", "platstdlib", "purelib", "platlib")}
        )
        self._package = os.path.dirname(os.path.abspath(__file__)) + os.sep
        self.found: set[tuple[str, str]] = set()
        self.watching = False
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watching or not (event in _SEARCHES or event in _FINDS or event == "open"):
            return
        self.watching = False  # looking at frames is such an event itself
        try:
            self._note(event, arguments)
        finally:
            self.watching = True

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "object.__setattr__" and arguments[1] != "__code__":
            return
        if event == "open" and not self._secret(arguments[0]):
            return
        if not self._from_candidate():
            return
        if event == "open":
            self.found.add(("searches-process", f"opens {os.fsdecode(arguments[0])}"))
        elif event in _FINDS:
            named = str(arguments[-1] if event == "ctypes.dlsym" else arguments[0])
            self.found.add(("finds-code", f"{_FINDS[event]}: {named[:200]}"))
        else:
            self.found.add(("searches-process", _SEARCHES[event]))

    def _secret(self, path: Any) -> bool:
        if not isinstance(path, (str, bytes)):
            return False
        text = os.fsdecode(path)
        return text in _SECRETS or os.path.abspath(text).startswith(self._package)

    def _from_candidate(self) -> bool:
        frame: Any = sys._getframe(3)
        while frame is not None and frame.f_code.co_filename.endswith(_PASSING):
            frame = frame.f_back
        if frame is None:
            return False
        name = frame.f_code.co_filename
        return not (name.startswith((*self._libraries, self._package, "<frozen")))
