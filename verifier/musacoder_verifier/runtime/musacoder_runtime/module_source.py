"""Import a module from its text, with its own file name and lines in tracebacks."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType


def load(source: str, path: str, name: str, *, file: str | None = None) -> ModuleType:
    """Execute `source` as module `name`. It is compiled by itself, so that `from __future__`
    stays its first statement, and the text needs not be on the disk for tracebacks to show it. The
    code speaks of `path` in tracebacks; `file` is what it sees as `__file__`, else `path` too."""
    module = ModuleType(name)
    module.__file__ = file or path
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    # Registered, since dataclasses, pickle and inspect look modules up by name.
    sys.modules[name] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module
