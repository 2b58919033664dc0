"""Loads what was compiled from a Candidate's calls of a loader, in the candidate child."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Mapping
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import Any


def load(artefact: Mapping[str, Any]) -> ModuleType:
    """The extension as a module with its bound functions.

    `artefact` has the fields of `musacoder_verifier.build_request.Artefact`. Raises ImportError
    where the library cannot be loaded or binds nothing.
    """
    if artefact["lane"] != "stock":
        # The extension names the shim without a path: it must be there first.
        ctypes.CDLL(artefact["shim"], mode=ctypes.RTLD_GLOBAL)
        trampoline = _extension("musacoder_trampoline", artefact["trampoline"])
        path, name = artefact["path"], artefact["module_name"]
        module: ModuleType = (
            trampoline.open(path, name)
            if artefact["launches"] is None
            else trampoline.open_native(path, name, artefact["launches"])
        )
        return module
    return _extension(artefact["module_name"], artefact["path"], shared=False)


def _extension(name: str, path: str, shared: bool = True) -> ModuleType:
    if shared and name in sys.modules:
        return sys.modules[name]
    loader = ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    if shared:
        sys.modules[name] = module
    return module
