"""Inputs of another form than the Workload's: shapes, layouts and alignments that users meet.

A kernel that refuses them or is wrong on them is not failed for it; adoption guards by it.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from musacoder_runtime import tensor_tree


def _resized(count: Callable[[int], int]) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """Another size of the first dimension, for all inputs that have the first input's."""

    def change(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        sizes = [t.shape[0] for t in inputs if t.dim() > 1]
        if not sizes or count(sizes[0]) == sizes[0]:
            raise ValueError("no leading dimension that could change")
        size = count(sizes[0])
        return [
            torch.cat([t] * -(-size // t.shape[0]))[:size].contiguous()
            if t.dim() > 0 and t.shape[0] == sizes[0]
            else t
            for t in inputs
        ]

    return change


def _strided(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    if not any(t.dim() > 1 for t in inputs):
        raise ValueError("no input with two dimensions")
    return [
        t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t for t in inputs
    ]


def _misaligned(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    moved = []
    for tensor in inputs:
        base = tensor.new_empty(tensor.numel() + 1)
        moved.append(base[1:].view(tensor.shape).copy_(tensor))
    return moved


def _as_dtype(dtype: torch.dtype) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    def change(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if all(t.dtype == dtype or not t.is_floating_point() for t in inputs):
            raise ValueError("no input of another floating dtype")
        return [t.to(dtype) if t.is_floating_point() else t for t in inputs]

    return change


_PROBES: dict[str, Callable[[list[torch.Tensor]], list[torch.Tensor]]] = {
    "leading dimension 1": _resized(lambda size: 1),
    "leading dimension + 1": _resized(lambda size: size + 1),
    "transposed strides": _strided,
    "unaligned memory": _misaligned,
    "float64": _as_dtype(torch.float64),
    "bfloat16": _as_dtype(torch.bfloat16),
}
PROBES = tuple(_PROBES)


def change(inputs: list[Any], probe: str) -> list[Any]:
    """`inputs` in the form of `probe`; ValueError where they have no such form."""
    leaves = tensor_tree.flatten(inputs)[1]
    tensors = iter(_PROBES[probe]([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]))
    changed = [next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return list(tensor_tree.rebuild(inputs, changed))
