"""Engines by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musacoder_inference.engines.base import Engine

ENGINES = ("synth",)


class UnknownEngine(ValueError):
    """Holds one sentence for the user."""


def engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """The Engine called `name`; raises UnknownEngine, also for an option's value that it
    does not know. `synth` takes `form`: `load_inline` (normally), or `native`, in which kernels for
    CUDA compile without host code."""
    if name == "synth":
        from musacoder_inference.engines.synth.engine import SynthEngine

        form = (options or {}).get("form", "load_inline")
        if form not in ("load_inline", "native"):
            raise UnknownEngine(f"synth has no form {form!r}; choose load_inline or native")
        return SynthEngine(form)
    known = ", ".join(ENGINES)
    raise UnknownEngine(f"there is no engine {name!r}; choose one of: {known}")
