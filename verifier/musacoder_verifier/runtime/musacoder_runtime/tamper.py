"""Has somebody replaced a function or a global switch that results or figures depend on?

A snapshot keeps the identity of every callable in the namespaces that a measurement rests on, and
for this package's own classes and functions that of methods and code objects too. Names that appear
later are not compared: torch imports parts of itself lazily. Code in the same process can find the
snapshot itself and change it; this reports what does not go that far.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Mapping
from types import FunctionType
from typing import Any, Optional

import torch
import torch.nn.functional

_NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.Module", torch.nn.Module),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.autograd", torch.autograd),
    ("torch.testing", torch.testing),
    ("torch.cuda", torch.cuda),
    ("torch.utils.deterministic", torch.utils.deterministic),
    ("torch._C._autograd", torch._C._autograd),
    ("torch._C._profiler", getattr(torch._C, "_profiler", None)),
)
_PYTHON: tuple[tuple[str, Any], ...] = (
    ("time", time),
    ("os", os),
    ("json", json),
    ("gc", gc),
    ("ctypes", ctypes),
    ("hashlib", hashlib),
    ("random", random),
    ("threading", threading),
    ("builtins", builtins),
)
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PACKAGE = "musacoder_runtime"
_SYS = ("settrace", "setprofile", "_getframe", "exit", "excepthook")


class Snapshot:
    """The callables and switches as they are now, for `changes` to compare with."""

    __slots__ = ("_attributes", "_callables", "state")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        """`attributes`: names of attributes, and the objects that must keep what they hold."""
        self._callables = _callables()
        self._attributes = [
            (owner, name, getattr(owner, name)) for name, owner in attributes.items()
        ]
        self.state = global_state()

    def hold(self, owner: Any, *names: str) -> None:
        """These attributes of `owner` must keep what they hold, too."""
        self._attributes += [(owner, name, getattr(owner, name)) for name in names]

    def changes(self) -> list[tuple[str, str]]:
        """(rule, what) for everything that was replaced or switched since; rules as in policy."""
        found: list[tuple[str, str]] = []
        now = _callables()
        for name, value in self._callables.items():
            if now.get(name) is not value and not _wrapped_by_torch(now.get(name), value):
                torch_name = name.startswith("torch") or name.startswith(_PACKAGE)
                found.append(("patched-torch" if torch_name else "patched-python", name))
        for owner, name, held in self._attributes:
            if getattr(owner, name, None) is not held:
                found.append(("patched-python", f"{type(owner).__name__}.{name}"))
        state = global_state()
        for name, value in self.state.items():
            if state.get(name) != value:
                found.append(("global-state", f"{name}: {value} -> {state.get(name)}"))
        return found


def _wrapped_by_torch(new: Any, old: Any) -> bool:
    """torch._dynamo wraps functions of torch when something imports it."""
    wraps = getattr(new, "__wrapped__", None) is old
    wraps = wraps or getattr(new, "_torchdynamo_orig_callable", None) is old
    code = getattr(new, "__code__", None)
    return wraps and code is not None and code.co_filename.startswith(_TORCH)


def _callables() -> dict[str, Any]:
    found: dict[str, Any] = {}
    ours = [
        (name, module)
        for name, module in list(sys.modules.items())
        if name.startswith(_PACKAGE) and module is not None
    ]
    for prefix, namespace in (*_NAMESPACES, *_PYTHON, *ours):
        if namespace is None:
            continue
        for name, value in list(vars(namespace).items()):
            if callable(value):
                found[f"{prefix}.{name}"] = value
                if prefix.startswith(_PACKAGE):
                    found.update(_inside(f"{prefix}.{name}", value))
    for name in _SYS:
        found[f"sys.{name}"] = getattr(sys, name)
    return found


def _inside(name: str, value: Any) -> dict[str, Any]:
    """What a function or class of this package does, beside what it is."""
    code = getattr(value, "__code__", None)
    if code is not None:
        return {f"{name}.__code__": code}
    if not isinstance(value, type) or not value.__module__.startswith(_PACKAGE):
        return {}
    found: dict[str, Any] = {}
    for key, member in list(vars(value).items()):
        if isinstance(member, FunctionType):
            found[f"{name}.{key}"] = member
            found[f"{name}.{key}.__code__"] = member.__code__
    return found


def global_state() -> dict[str, str]:
    """Switches of torch that change results or figures of code that runs later."""
    backends: Any = torch.backends
    readings: dict[str, Any] = {
        "default dtype": torch.get_default_dtype,
        "grad mode": torch.is_grad_enabled,
        "threads": torch.get_num_threads,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "matmul tf32": lambda: backends.cuda.matmul.allow_tf32,
        "reduced precision reduction": lambda: (
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "cudnn tf32": lambda: backends.cudnn.allow_tf32,
        "cudnn benchmark": lambda: backends.cudnn.benchmark,
        "mkldnn": lambda: backends.mkldnn.enabled,
    }
    return {name: reading for name, read in readings.items() if (reading := _read(read))}


def _read(function: Any) -> Optional[str]:
    try:
        return str(function())
    except (AttributeError, RuntimeError):  # a switch that this torch does not have
        return None


def restore(state: dict[str, str]) -> None:
    """Puts back the switches that later stages of this process depend on."""
    if str(torch.get_default_dtype()) != state["default dtype"]:
        torch.set_default_dtype(getattr(torch, state["default dtype"].split(".")[-1]))
    torch.set_num_threads(int(state["threads"]))
    torch.set_float32_matmul_precision(state["float32 matmul precision"])
