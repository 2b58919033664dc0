"""What the Reference gives for one recipe, until a Candidate's output is judged against it."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch

from musacoder_runtime import tensor_tree

Flat = Tuple[Any, List[Any]]
# More than this share of an output not finite: these inputs say nothing about a kernel.
_USELESS = 0.5
# Elements that are looked at together.
_CHUNK = 1 << 24


class Trial:
    """`inputs` are empty where they take too much memory to be kept."""

    def __init__(
        self, index: int, own: bool, seed: int, distribution: str, inputs: list[Any], expected: Flat
    ) -> None:
        self.index = index
        self.own = own
        self.seed = seed
        self.distribution = distribution
        self.inputs = inputs
        self.expected = expected
        self.golden: Optional[list[Any]] = None
        self.effects: dict[str, Flat] = {}  # changed inputs and buffers, by name


def varies(leaf: Any) -> bool:
    """Has it elements that differ?"""
    if not isinstance(leaf, torch.Tensor) or leaf.numel() < 2:
        return False
    flat = leaf.reshape(-1)
    return any(bool((part != flat[0]).any()) for part in torch.split(flat, _CHUNK))


def useful(expected: Flat) -> bool:
    """Are enough elements of every output finite?"""
    for leaf in expected[1]:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel():
            parts = torch.split(leaf.reshape(-1), _CHUNK)
            finite = sum(int(part.isfinite().sum()) for part in parts)
            if finite < (1.0 - _USELESS) * leaf.numel():
                return False
    return True


def doubled(value: Any) -> Any:
    """With every floating leaf in float64."""
    structure = tensor_tree.flatten(value)[1]
    cast = [
        leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
        for leaf in structure
    ]
    return tensor_tree.rebuild(value, cast)


def bytes_of(leaves: list[Any]) -> int:
    """Of the tensors among them."""
    return sum(t.numel() * t.element_size() for t in leaves if isinstance(t, torch.Tensor))
