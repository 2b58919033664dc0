"""Inputs from a seed and a recipe, the same bits in every process.

`own` are the Workload's own inputs. The other distributions change the values of floating leaves
and keep shapes, strides, dtypes, and every integer and bool: a kernel that is right only for
randn, only for positive values or only in the middle of a Gaussian shows there.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any, Callable, Dict, List, Tuple

import torch

from musacoder_runtime import tensor_tree

Transform = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _noise(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(values.shape, generator=generator, dtype=torch.float32, device=values.device)


def _heavy(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    # A ratio of normals, kept off its pole: Cauchy-like tails of up to about 60.
    tail = _noise(values, generator) / (_noise(values, generator).abs() + 0.05)
    return tail.to(values.dtype)


def _sorted(values: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """By NumPy where it can: its sort is an order of magnitude faster than torch's, which keeps the
    places, too. The values are the same, and so is the choice on both sides of a Verdict."""
    try:
        plain = values.numpy()
    except (RuntimeError, TypeError):  # no NumPy, or a dtype that it does not have
        return values.sort().values
    plain = plain.copy()
    plain.sort()
    return torch.from_numpy(plain)


def _constant(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.full_like(values, 0.75)


def _fine(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """In [1, 2), each a little less than half a step of a ten-bit mantissa above a ten-bit number:
    TF32 and half round every one of them down, so that the errors of a sum do not cancel."""
    steps = _whole_numbers(values, 1 << 10, generator)
    return (1.0 + (steps + 0.46) / (1 << 10)).to(values.dtype)


def _binary(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Zeros and ones: sums of products are whole numbers, exact in float32 up to 2**24."""
    return _whole_numbers(values, 2, generator).to(values.dtype)


def _whole_numbers(values: torch.Tensor, end: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(
        0, end, values.shape, generator=generator, dtype=torch.float32, device=values.device
    )


_TRANSFORMS: Dict[str, Transform] = {
    "wide": lambda values, _: values * 8.0,
    "small": lambda values, _: values / 64.0,
    "shifted": lambda values, _: values * 2.5 + 3.0,
    "negative": lambda values, _: -values.abs(),
    "heavy": _heavy,
    "sorted": _sorted,
    "constant": _constant,
    "fine": _fine,
    "binary": _binary,
}
OWN = "own"
STRESS: Tuple[str, ...] = tuple(_TRANSFORMS)
# A tie has no one right index: integer outputs are not compared where all inputs are equal.
AMBIGUOUS_INDICES = frozenset({"constant", "binary"})


def seed_everything(seed: int) -> None:
    """Seed every generator that user code is likely to draw from."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def transform(inputs: List[Any], distribution: str, seed: int) -> List[Any]:
    """`inputs` with the same layout and other values in their floating leaves."""
    if distribution == OWN:
        return inputs
    change = _TRANSFORMS[distribution]
    generators: Dict[torch.device, torch.Generator] = {}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        if leaf.device not in generators:
            generators[leaf.device] = torch.Generator(leaf.device).manual_seed(seed)
        with torch.no_grad():
            return like(leaf, change(whole_storage(leaf), generators[leaf.device]))

    return _map(inputs, one)


def whole_storage(leaf: torch.Tensor) -> torch.Tensor:
    """All elements of the storage behind `leaf` as one flat tensor that shares its memory."""
    count = leaf.untyped_storage().nbytes() // leaf.element_size()
    return torch.as_strided(leaf.detach(), (count,), (1,), 0)


def like(leaf: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """`flat` seen with the shape, strides and offset of `leaf`."""
    return torch.as_strided(flat, leaf.shape, leaf.stride(), leaf.storage_offset())


def clone(inputs: List[Any]) -> List[Any]:
    """New memory, same values and layout."""
    return _map(
        inputs,
        lambda leaf: (
            like(leaf, whole_storage(leaf).clone()) if isinstance(leaf, torch.Tensor) else leaf
        ),
    )


def varied(inputs: List[Any], seed: int, count: int) -> List[List[Any]]:
    """`count` sets in new memory, with other values of nearly the same distribution each.

    Every storage is rolled by a random number of places. Floating values are also multiplied by a
    random factor in [0.9, 1) each, so that no set's sums, extremes or order follow from another's.
    A factor keeps signs and what lies between -1 and 1 there. Integers, and floating leaves that
    hold whole numbers only (masks, class numbers), keep their values.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    factors: Dict[int, torch.Tensor] = {}

    def one(index: int, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        flat = whole_storage(leaf)
        moved = flat.roll(_place(flat, generator))
        if index in factors:
            factor = factors[index]
            if flat.numel() <= _FEW:
                factor = _factors(flat, generator)
            moved.mul_(factor.roll(_place(flat, generator)))
        return like(leaf, moved)

    with torch.no_grad():
        leaves = tensor_tree.flatten(inputs)[1]
        for index, leaf in enumerate(leaves if count else []):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                flat = whole_storage(leaf)
                if not bool((flat.float().round() == flat.float()).all()):
                    factors[index] = _factors(flat, generator)
        return [
            list(tensor_tree.rebuild(inputs, [one(*numbered) for numbered in enumerate(leaves)]))
            for _ in range(count)
        ]


# Up to here every set has factors of its own; beyond, drawing them would cost more than timing,
# and the sets share factors that are rolled apart from the values.
_FEW = 1 << 16


def _place(flat: torch.Tensor, generator: torch.Generator) -> int:
    return int(torch.randint(max(flat.numel(), 1), (1,), generator=generator, device="cpu"))


def _factors(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    there = generator
    if flat.device.type != "cpu":
        drawn = torch.randint(1 << 31, (1,), generator=generator, device="cpu")
        there = torch.Generator(flat.device).manual_seed(int(drawn))
    factors = torch.rand(flat.numel(), generator=there, device=flat.device).mul_(-0.1).add_(1.0)
    return factors.to(flat.dtype)


def refill(old: List[Any], new: List[Any]) -> List[Any]:
    """The memory of `old` with the values of `new`; `new` itself where the layouts differ."""
    before, after = tensor_tree.flatten(old)[1], tensor_tree.flatten(new)[1]
    leaves = []
    for index, fresh in enumerate(after):
        kept = before[index]
        if isinstance(fresh, torch.Tensor) and _same_layout(kept, fresh):
            whole_storage(kept).copy_(whole_storage(fresh))
            leaves.append(kept)
        else:
            leaves.append(fresh)
    return list(tensor_tree.rebuild(new, leaves))


def _same_layout(first: Any, second: torch.Tensor) -> bool:
    return (
        isinstance(first, torch.Tensor)
        and first.dtype == second.dtype
        and first.shape == second.shape
        and first.stride() == second.stride()
        and first.storage_offset() == second.storage_offset()
        and first.untyped_storage().nbytes() == second.untyped_storage().nbytes()
    )


def _map(inputs: List[Any], function: Callable[[Any], Any]) -> List[Any]:
    leaves = [function(leaf) for leaf in tensor_tree.flatten(inputs)[1]]
    return list(tensor_tree.rebuild(inputs, leaves))


def to_device(inputs: List[Any], device: str) -> List[Any]:
    return _map(inputs, lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf)


def digest(tree: Any) -> str:
    """Content digest of all leaves."""
    return combined(leaf_digests(tree))


def combined(digests: List[str]) -> str:
    """The digest of a tree from those of its leaves."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def leaf_digests(tree: Any) -> List[str]:
    return [_leaf_digest(leaf) for leaf in tensor_tree.flatten(tree)[1]]


def _leaf_digest(leaf: Any) -> str:
    """Of dtype, shape, strides and values. Processors have instructions for SHA-256, so that it is
    the fastest of the digests that nobody can forge."""
    state = hashlib.sha256()
    if isinstance(leaf, torch.Tensor):
        state.update(f"{leaf.dtype}{tuple(leaf.shape)}{leaf.stride()}".encode())
        tensor_tree.digests.update(state, leaf)
    else:
        state.update(f"{type(leaf).__name__}{leaf!r}".encode())
    return state.hexdigest()
