"""Is the judge able to tell a wrong result from a right one, on these inputs?

Outputs that no kernel computed (`imposters`) are judged like a Candidate's. On softmax over many
classes all zeros are within 1e-4; on randn a copy is nearly a layer norm. An imposter that the
Workload's own inputs let pass must be caught by another distribution (`widened`), or by a tolerance
scaled to the output's RMS (`scaled`); else the oracle is `weak`. An imposter that is bit for bit
the expected output on every trial is right by construction, and exempt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, Sequence

import torch

from musacoder_runtime import judge

STATES = ("strong", "widened", "scaled", "weak")


@dataclass(frozen=True)
class ImposterResult:
    """How one imposter fared on one trial."""

    name: str
    own: bool  # on the Workload's own inputs
    rejected: bool
    rejected_scaled: bool
    equal: bool


def imposters(
    expected: tuple[Any, Sequence[Any]],
    inputs: Sequence[Any],
    previous: Optional[tuple[Any, Sequence[Any]]],
    without: Collection[str] = (),
) -> Iterator[tuple[str, list[Any]]]:
    """(name, leaves) of false outputs, but for those named in `without`; one at a time, since each
    takes as much memory as the output. `previous` is the expected output of another trial."""
    leaves = expected[1]
    made = {"zeros": _zeros, "constant": _mean, "permuted": _permuted}
    for name, make in made.items():
        if name not in without:
            yield name, [make(leaf) for leaf in leaves]
    copied = [_copied(leaf, inputs) for leaf in leaves] if "input" not in without else [None]
    if all(leaf is not None for leaf in copied):
        yield "input", copied
    if previous is not None and "stale" not in without and _same_shapes(previous, expected):
        yield "stale", list(previous[1])


def probe(
    expected: tuple[Any, Sequence[Any]],
    golden: Optional[Sequence[Any]],
    inputs: Sequence[Any],
    previous: Optional[tuple[Any, Sequence[Any]]],
    *,
    own: bool,
    compare_integers: bool = True,
    settled: Collection[str] = (),
) -> list[ImposterResult]:
    """Judge every imposter on one trial, but for those that are `settled`."""
    results = []
    exact = list(golden) if golden is not None else [None] * len(expected[1])
    errors: list[float] | None = None
    for name, leaves in imposters(expected, inputs, previous, settled):
        if errors is None:
            errors = [judge.largest_error(e, g) for e, g in zip(expected[1], exact)]
        if any(
            judge.rejects(a, e, g, stress=not own, reference_error=error)
            for a, e, g, error in zip(leaves, expected[1], exact, errors)
        ):
            results.append(ImposterResult(name, own, True, True, False))
            continue
        comparison = judge.compare_trees(
            (expected[0], leaves),
            expected,
            golden,
            stress=not own,
            compare_integers=compare_integers,
        )
        results.append(
            ImposterResult(
                name,
                own,
                not comparison.passes,
                not comparison.scaled_passes,
                all(_equal(a, e) for a, e in zip(leaves, expected[1])),
            )
        )
    return results


def settled(results: Iterable[ImposterResult]) -> set[str]:
    """Imposters that the Workload's own inputs refuse: nothing can make them worse."""
    return {result.name for result in results if result.own and result.rejected}


def conclude(results: Iterable[ImposterResult]) -> tuple[str, tuple[str, ...]]:
    """(state, names of the imposters that put it there), the worst over all imposters."""
    by_name: dict[str, list[ImposterResult]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    states = {name: _state(items) for name, items in by_name.items()}
    worst = max(states.values(), key=STATES.index, default="strong")
    named = tuple(sorted(name for name, state in states.items() if state == worst))
    return worst, named if worst != "strong" else ()


def _state(items: Sequence[ImposterResult]) -> str:
    if all(item.equal for item in items) or any(item.rejected and item.own for item in items):
        return "strong"
    if any(item.rejected for item in items):
        return "widened"
    if any(item.rejected_scaled and item.own for item in items):
        return "scaled"
    return "weak"


def _zeros(leaf: Any) -> Any:
    return torch.zeros_like(leaf) if isinstance(leaf, torch.Tensor) else type(leaf)()


def _mean(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.numel() == 0 or leaf.is_complex():
        return leaf
    if not leaf.is_floating_point():
        return torch.full_like(leaf, leaf.reshape(-1)[0].item())
    return torch.full_like(leaf, float(leaf.mean(dtype=torch.float64)))


def _permuted(leaf: Any) -> Any:
    """Rolled by an odd share of the whole: no row, column or plane stays where it was."""
    if not isinstance(leaf, torch.Tensor) or leaf.numel() < 2:
        return leaf
    return leaf.reshape(-1).roll(leaf.numel() // 3 + 1).reshape(leaf.shape)


def _copied(leaf: Any, inputs: Sequence[Any]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.numel() == leaf.numel():
            return value.detach().to(leaf.device).reshape(leaf.shape).to(leaf.dtype)
    return None


def _same_shapes(first: tuple[Any, Sequence[Any]], second: tuple[Any, Sequence[Any]]) -> bool:
    return first[0] == second[0] and all(
        getattr(a, "shape", None) == getattr(b, "shape", None) for a, b in zip(first[1], second[1])
    )


def _equal(actual: Any, expected: Any) -> bool:
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        return judge.identical(actual, expected, nan=True)
    return bool(actual == expected)
