"""Which operators synth reads, and by which rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from musacoder_inference.engines.synth.ir import Tensor

if TYPE_CHECKING:
    from musacoder_inference.engines.synth.from_graph.builder import Builder
    from musacoder_inference.engines.synth.from_graph.node import Node

Values = Tensor | tuple[Tensor | None, ...]
Rule = Callable[["Builder", "Node"], Values]


@dataclass(frozen=True, slots=True)
class Entry:
    """`note` says what of the operator is not covered, for the coverage table."""

    rule: Rule
    family: str
    note: str = ""


RULES: dict[str, Entry] = {}


def covers(family: str, *operators: str, note: str = "") -> Callable[[Rule], Rule]:
    """Registers a rule for operators such as `aten.add.Tensor`."""

    def register(rule: Rule) -> Rule:
        for operator in operators:
            RULES[operator] = Entry(rule, family, note)
        return rule

    return register
