"""What is known of a value in the user's code, and what is computed on it."""

from __future__ import annotations

from dataclasses import dataclass

from musacoder_lsp.sites.operations import Role


@dataclass(frozen=True, slots=True)
class Value:
    """`kind`: tensor, tensors (a tuple or list of them), scalar, shape, module, modules, self,
    other, or unknown; `dotted`: what a name stands for, when it is a name."""

    kind: str
    dotted: str | None = None


TENSOR = Value("tensor")
TENSORS = Value("tensors")
SCALAR = Value("scalar")
SHAPE = Value("shape")
OTHER = Value("other")
UNKNOWN = Value("unknown")
SELF = Value("self")
MODULES = Value("modules")


@dataclass(frozen=True, slots=True)
class Operation:
    """One computation on tensors, at bytes [start, end)."""

    start: int
    end: int
    name: str
    role: Role
    # A call of something whose inside was not seen: a module, a helper.
    outside: bool = False
