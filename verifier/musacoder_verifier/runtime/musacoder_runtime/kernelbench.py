"""What KernelBench itself would say of an output: `torch.allclose`, on its own trial seeds.

Source of constants and order: `run_and_check_correctness` in ScalingIntelligence/KernelBench,
`src/kernelbench/eval.py`. Two things differ on purpose: outputs that are not one tensor are
compared leaf by leaf (KernelBench raises on them), and integer and bool inputs keep their dtype
(KernelBench casts them to the precision, which breaks every Reference that indexes with them).
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch

_CHUNK = 1 << 22
Flat = Tuple[Any, Sequence[Any]]


def trial_seeds(seed: int, count: int) -> List[int]:
    """The seeds of `count` trials, drawn from `seed`."""
    torch.manual_seed(seed)
    return [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(count)]


def compare(actual: Flat, expected: Flat, tolerances: Sequence[float]) -> Dict[str, Any]:
    """`passes`: for each of `tolerances` (atol = rtol) whether `torch.allclose(expected, actual)`
    holds. `max_difference` and `avg_difference` are over the leaf that differs most; `shape` says
    how shapes differ, `error` why the outputs cannot be compared at all; both None if they agree.
    """
    answer: Dict[str, Any] = {
        "passes": [True] * len(tolerances),
        "max_difference": 0.0,
        "avg_difference": 0.0,
        "shape": None,
        "error": None,
    }
    if actual[0] != expected[0]:
        answer["error"] = "the outputs have another structure"
    for ours, theirs in zip(actual[1], expected[1]):
        if answer["error"] is None and answer["shape"] is None:
            _leaf(ours, theirs, tolerances, answer)
    if answer["error"] is not None or answer["shape"] is not None:
        answer["passes"] = [False] * len(tolerances)
    return answer


def _leaf(ours: Any, theirs: Any, tolerances: Sequence[float], answer: Dict[str, Any]) -> None:
    if not isinstance(theirs, torch.Tensor):
        if ours != theirs:
            answer["error"] = f"returned {ours!r}, expected {theirs!r}"
        return
    if not isinstance(ours, torch.Tensor):
        answer["error"] = f"returned a {type(ours).__name__}, expected a tensor"
    elif ours.shape != theirs.shape:
        answer["shape"] = f"Expected {theirs.shape}, got {ours.shape}"
    elif ours.dtype != theirs.dtype:
        answer["error"] = f"{ours.dtype} did not match {theirs.dtype}"
    else:
        _values(ours, theirs, tolerances, answer)


def _values(
    ours: torch.Tensor, theirs: torch.Tensor, tolerances: Sequence[float], answer: Dict[str, Any]
) -> None:
    if ours.dtype == torch.bool:
        ours, theirs = ours.to(torch.uint8), theirs.to(torch.uint8)
    largest, total = 0.0, 0.0
    flat = ours.reshape(-1), theirs.reshape(-1)
    for start in range(0, theirs.numel(), _CHUNK):
        new, old = (tensor[start : start + _CHUNK] for tensor in flat)
        difference = (old - new).abs()
        for place, tolerance in enumerate(tolerances):
            if answer["passes"][place]:
                close = torch.isclose(old, new, rtol=tolerance, atol=tolerance)
                answer["passes"][place] = bool(close.all())
        top = float(difference.max())
        # As torch.max does, a NaN is the largest.
        largest = top if top != top or largest != largest else max(largest, top)
        total += float(difference.double().sum())
    if not largest <= answer["max_difference"]:
        answer["max_difference"] = largest
        answer["avg_difference"] = total / max(theirs.numel(), 1)
