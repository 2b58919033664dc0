"""One node of the graph JSON, with its arguments by position and its results' types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def operator(self) -> str:
        return str(self.data["op"])

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """A raw argument, by position or keyword."""
        args = self.data["args"]
        if position < len(args):
            return args[position]
        return self.data["kwargs"].get(name, default)

    def shape(self, output: int = 0) -> tuple[int, ...]:
        return tuple(self.data["outputs"][output]["shape"])

    def dtype(self, output: int = 0) -> str:
        return str(self.data["outputs"][output]["dtype"])


def is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, dict) and "float" in value)


def number(value: Any) -> float | int | bool:
    """A number argument; infinities and NaN travel as `{"float": "inf"}`."""
    if isinstance(value, dict):
        return float(value["float"])
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{value!r} is not a number")
    return value
