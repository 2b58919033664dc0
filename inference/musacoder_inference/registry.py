"""Engines by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musacoder_inference.engines.base import Engine

ENGINES = ("synth",)


class UnknownEngine(ValueError):
    """Holds one sentence for the user."""


def engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """The Engine called `name`; raises UnknownEngine. `synth` takes no options."""
    if name == "synth":
        from musacoder_inference.engines.synth.engine import SynthEngine

        return SynthEngine()
    known = ", ".join(ENGINES)
    raise UnknownEngine(f"there is no engine {name!r}; choose one of: {known}")
