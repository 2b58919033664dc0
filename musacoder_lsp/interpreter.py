"""Which Python runs the user's code."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`origin` says in a message where the choice came from, such as `the setting ...`."""

    path: str
    origin: str


class NoInterpreter(Exception):
    """One sentence: what was tried and what to do."""


def find_interpreter(
    setting: str | None, folder: Path | None, environment: Mapping[str, str]
) -> Interpreter:
    """The setting, else the active environment, else `.venv` of the folder, else the environment
    that this program is installed in if it has torch, else PATH.

    A setting that names nothing runnable is an error rather than a reason to try the next: the
    user's figures would otherwise be those of another torch. Raises NoInterpreter.
    """
    if setting is not None:
        path = Path(setting)
        if not path.is_absolute() and folder is not None and len(path.parts) > 1:
            path = folder / path
        found = shutil.which(str(path), path=environment.get("PATH"))
        if found is None:
            raise NoInterpreter(
                f"The setting musacoder.python names {setting}, which is not an executable file; "
                "set it to the Python that has torch."
            )
        return Interpreter(found, "the setting musacoder.python")
    active = environment.get("VIRTUAL_ENV")
    if active and (found := _runnable(Path(active) / "bin" / "python")):
        return Interpreter(found, "VIRTUAL_ENV")
    for name in (".venv", "venv") if folder is not None else ():
        assert folder is not None
        if found := _runnable(folder / name / "bin" / "python"):
            return Interpreter(found, f"{name} of the folder {folder.name}")
    if importlib.util.find_spec("torch") is not None:
        return Interpreter(sys.executable, "the server's own environment")
    for name in ("python3", "python"):
        if found := shutil.which(name, path=environment.get("PATH")):
            return Interpreter(found, "PATH")
    raise NoInterpreter(
        "No Python interpreter was found (no VIRTUAL_ENV, no .venv in the folder, no python3 on "
        "PATH); set musacoder.python to the one that has torch."
    )


def _runnable(path: Path) -> str | None:
    return str(path) if path.is_file() and os.access(path, os.X_OK) else None
