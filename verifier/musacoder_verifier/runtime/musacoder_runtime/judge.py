"""Whether outputs agree with the expected ones. Pure functions over torch, on any device.

An element is right if it is within tolerance of the Reference's own result or of a float64 run of
the Reference (`golden`). A leaf that misses both is still right if its largest float64 error is
at most twice the Reference's own: no kernel fails for the Reference's rounding. Every value is
judged against two absolute tolerances at once, the plain one and one scaled by the RMS of the
output, so that a weak oracle can be replaced by the scaled one without running anything again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

import torch

# KernelBench: atol = rtol per dtype.
TOLERANCE: Mapping[str, float] = {
    "float64": 1e-4,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 1e-2,
    "complex64": 1e-4,
    "complex128": 1e-4,
}
DEFAULT_TOLERANCE = 1e-2  # float8 and other storage types
# Over tolerance, but with a relative error below this: a near miss, its own class of failure.
NEAR_MISS = 1e-3
# Elements that are looked at together: what a processor's caches hold, and what keeps a GPU busy.
_CHUNK = 1 << 17
_DEVICE_CHUNK = 1 << 24
# Elements of a thin sample, and how many of them must be wrong for a sure refusal.
_SAMPLE = 1 << 13
_SURE = 8


@dataclass
class Comparison:
    """What comparing one output, or a tree of them, showed. Errors are against the golden values
    where there are some; `max_rel_error` is relative to the larger of the element and the RMS."""

    check: Optional[str] = None  # the first check that failed: structure, type, dtype, values ...
    detail: str = ""
    scaled_passes: bool = True
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    candidate_error: Optional[float] = None  # largest float64 error, None without golden values
    reference_error: Optional[float] = None
    tolerance: dict[str, float] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        return self.check is None

    @property
    def near_miss(self) -> bool:
        return self.check == "values" and self.max_rel_error < NEAR_MISS


def tolerance_of(dtype: torch.dtype) -> float:
    return TOLERANCE.get(str(dtype)[len("torch.") :], DEFAULT_TOLERANCE)


def compare_trees(
    actual: tuple[Any, Sequence[Any]],
    expected: tuple[Any, Sequence[Any]],
    golden: Optional[Sequence[Any]] = None,
    *,
    stress: bool = False,
    compare_integers: bool = True,
) -> Comparison:
    """Compare flattened trees, (structure, leaves) each; see `compare`."""
    if actual[0] != expected[0]:
        return _failed("structure", f"returned {shape_of(actual)}, expected {shape_of(expected)}")
    total = Comparison()
    for index, wanted in enumerate(expected[1]):
        if not compare_integers and _is_integer_tensor(wanted):
            continue
        exact = golden[index] if golden is not None else None
        part = _compare_leaf(actual[1][index], wanted, exact, stress)
        _merge(total, part, index, len(expected[1]))
    return total


def compare_calls(
    actual: Sequence[tuple[Any, Sequence[Any]]], expected: Sequence[tuple[Any, Sequence[Any]]]
) -> Comparison:
    """Compare the flattened outputs of several calls, without golden values. Outputs of one shape
    are judged as one tensor: hundreds of small ones take as long as a large one."""
    total = Comparison()
    width = len(expected[0][1])
    for ours, theirs in zip(actual, expected):
        if ours[0] != theirs[0] or len(ours[1]) != width:
            return compare_trees(ours, theirs)
    for place in range(width):
        columns = [[flat[1][place] for flat in side] for side in (actual, expected)]
        if _stackable([*columns[0], *columns[1]]):
            part = _compare_leaf(torch.stack(columns[0]), torch.stack(columns[1]), None, False)
            _merge(total, part, place, width)
            continue
        for ours, theirs in zip(*columns):
            _merge(total, _compare_leaf(ours, theirs, None, False), place, width)
    return total


def _stackable(leaves: Sequence[Any]) -> bool:
    first = leaves[0]
    return isinstance(first, torch.Tensor) and all(
        isinstance(leaf, torch.Tensor) and leaf.shape == first.shape and leaf.dtype == first.dtype
        for leaf in leaves
    )


def _is_integer_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not (leaf.is_floating_point() or leaf.is_complex())


def _merge(total: Comparison, part: Comparison, index: int, count: int) -> None:
    if total.check is None and part.check is not None:
        total.check = part.check
        total.detail = f"output {index}: {part.detail}" if count > 1 else part.detail
    total.scaled_passes = total.scaled_passes and part.scaled_passes
    total.max_abs_error = max(total.max_abs_error, part.max_abs_error)
    total.max_rel_error = max(total.max_rel_error, part.max_rel_error)
    for name in ("candidate_error", "reference_error"):
        values = [v for v in (getattr(total, name), getattr(part, name)) if v is not None]
        setattr(total, name, max(values) if values else None)
    total.tolerance.update(part.tolerance)


def shape_of(tree: tuple[Any, Sequence[Any]]) -> str:
    """A short description of a flattened tree, for messages."""

    def walk(node: Any) -> str:
        if "sequence" in node:
            return "(" + ", ".join(walk(item) for item in node["sequence"]) + ")"
        if "mapping" in node:
            return "{" + ", ".join(f"{key}: {walk(item)}" for key, item in node["mapping"]) + "}"
        return _name_of(tree[1][node["leaf"]])

    return walk(tree[0])


def _name_of(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype)[len('torch.') :]}{list(leaf.shape)}"
    if isinstance(leaf, dict):
        return str(leaf.get("type"))
    return type(leaf).__name__


def _failed(check: str, detail: str) -> Comparison:
    return Comparison(check=check, detail=detail, scaled_passes=False)


def _compare_leaf(actual: Any, expected: Any, golden: Any, stress: bool) -> Comparison:
    if not isinstance(expected, torch.Tensor):
        return _compare_value(actual, expected)
    if not isinstance(actual, torch.Tensor):
        return _failed("output_type", f"returned {_name_of(actual)}, expected a plain tensor")
    if actual.shape != expected.shape:
        return _failed("shape", f"shape {list(actual.shape)}, expected {list(expected.shape)}")
    if actual.dtype != expected.dtype:
        return _failed("dtype", f"{actual.dtype}, expected {expected.dtype}")
    exact = golden if isinstance(golden, torch.Tensor) else None
    if exact is not None and exact.shape != expected.shape:
        exact = None
    return compare(actual, expected, exact, stress=stress)


def rejects(
    actual: Any,
    expected: Any,
    golden: Any = None,
    *,
    stress: bool,
    reference_error: float = 0.0,
) -> bool:
    """Whether a thin sample of a leaf is enough to refuse it, plainly and scaled. With golden
    values `reference_error` is the largest float64 error of the whole of `expected`. False says
    nothing."""
    if not (isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)):
        return False
    if actual.shape != expected.shape or not expected.is_floating_point():
        return False
    exact = golden if isinstance(golden, torch.Tensor) else None
    if exact is not None and exact.shape != expected.shape:
        return False
    step = max(1, expected.numel() // _SAMPLE)
    wanted = tolerance_of(expected.dtype)
    thin = [t.reshape(-1)[::step] if t is not None else None for t in (actual, expected, exact)]
    assert thin[0] is not None and thin[1] is not None
    rms = root_mean_square(thin[1])
    plain = wanted * max(1.0, rms) if stress else wanted
    figures = _scan(thin[0], thin[1], thin[2], wanted, plain, max(plain, wanted * rms), rms, stress)
    if exact is not None and (figures.candidate_error or 0.0) <= 2.0 * reference_error:
        return False
    return min(figures.bad, figures.bad_scaled) > _SURE


def largest_error(expected: Any, golden: Any) -> float:
    """The largest difference of a leaf of the Reference's from its float64 run, in float64;
    infinity where it is not finite everywhere, 0 where there is nothing to compare."""
    if not (isinstance(expected, torch.Tensor) and isinstance(golden, torch.Tensor)):
        return 0.0
    if not expected.is_floating_point() or expected.shape != golden.shape:
        return 0.0
    largest = 0.0
    flat = [torch.split(tensor.reshape(-1), _chunk(tensor)) for tensor in (expected, golden)]
    for rough, exact in zip(*flat):
        top = _top((exact - rough.double()).abs_())
        if not math.isfinite(top):
            return math.inf
        largest = max(largest, top)
    return largest


def _compare_value(actual: Any, expected: Any) -> Comparison:
    if isinstance(expected, float) and isinstance(actual, (int, float)):
        pair = [torch.tensor([value], dtype=torch.float64) for value in (actual, expected)]
        return compare(pair[0], pair[1], None, tolerance=TOLERANCE["float32"])
    if type(actual) is not type(expected) or actual != expected:
        return _failed("values", f"returned {actual!r}, expected {expected!r}")
    return Comparison()


def compare(
    actual: torch.Tensor,
    expected: torch.Tensor,
    golden: Optional[torch.Tensor],
    *,
    stress: bool = False,
    tolerance: Optional[float] = None,
) -> Comparison:
    """Compare tensors of one shape and dtype.

    Integers and bools must be equal. `stress` is for inputs that are not the Workload's own:
    the absolute tolerance then grows with the output's RMS above 1, and elements where the
    Reference itself is not finite are left out.
    """
    if expected.is_complex():
        parts = [torch.view_as_real(t.resolve_conj()) for t in (actual, expected)]
        exact = torch.view_as_real(golden.resolve_conj()) if golden is not None else None
        return compare(parts[0], parts[1], exact, stress=stress, tolerance=tolerance)
    if not expected.is_floating_point():
        return _compare_exactly(actual, expected)
    wanted = tolerance if tolerance is not None else tolerance_of(expected.dtype)
    if golden is None and identical(actual, expected):
        return Comparison(tolerance={str(expected.dtype)[len("torch.") :]: wanted})
    rms = root_mean_square(expected)
    plain = wanted * max(1.0, rms) if stress else wanted
    scaled = wanted * rms if stress else wanted * min(1.0, rms)
    figures = _scan(actual, expected, golden, wanted, plain, scaled, rms, stress)
    return figures.judged(str(expected.dtype)[len("torch.") :], wanted)


def _compare_exactly(actual: torch.Tensor, expected: torch.Tensor) -> Comparison:
    count, first, error, largest = 0, 0, 0.0, 1.0
    ours, theirs = actual.reshape(-1), expected.reshape(-1)
    step = _chunk(expected)
    for start in range(0, theirs.numel(), step):
        a, e = ours[start : start + step], theirs[start : start + step]
        wrong = a != e
        found = int(wrong.sum())
        largest = max(largest, _top(e.double().abs_()))
        if found == 0:
            continue
        if count == 0:
            first = start + int(wrong.to(torch.uint8).argmax())
        count += found
        error = max(error, _top((a.double() - e.double()).abs_()))
    if count == 0:
        return Comparison()
    got, want = ours[first].item(), theirs[first].item()
    comparison = _failed(
        "values", f"{count} of {expected.numel()} elements differ, first {got} instead of {want}"
    )
    comparison.max_abs_error = error
    comparison.max_rel_error = error / largest
    return comparison


def identical(actual: torch.Tensor, expected: torch.Tensor, nan: bool = False) -> bool:
    """All elements equal; `nan`: a NaN equals a NaN. Takes no memory of the size of the tensors."""
    if actual.shape != expected.shape:
        return False
    if actual.device.type == "cpu" and not nan:
        return torch.equal(actual, expected)
    flat = [torch.split(tensor.reshape(-1), _chunk(tensor)) for tensor in (actual, expected)]
    return all(
        bool(((a == e) | (a.isnan() & e.isnan())).all()) if nan else torch.equal(a, e)
        for a, e in zip(*flat)
    )


def root_mean_square(tensor: torch.Tensor) -> float:
    """RMS of the finite elements, 0 where there are none; chunked, in float64."""
    total, count = 0.0, 0
    for chunk in torch.split(tensor.reshape(-1), _chunk(tensor)):
        norm = float(torch.linalg.vector_norm(chunk, dtype=torch.float64))
        if math.isfinite(norm):
            total += norm * norm
            count += chunk.numel()
            continue
        values = chunk.double()
        values = values[values.isfinite()]
        total += float(values.square().sum())
        count += values.numel()
    return (total / count) ** 0.5 if count else 0.0


@dataclass
class _Figures:
    """Sums over chunks of one comparison."""

    elements: int
    bad: int = 0  # elements out of tolerance
    bad_scaled: int = 0
    bad_finiteness: int = 0  # NaN or infinity on one side only: no rounding explains it
    max_abs: float = 0.0
    max_rel: float = 0.0
    candidate_error: Optional[float] = None
    reference_error: Optional[float] = None
    first: Optional[tuple[int, float, float]] = None  # index, actual, expected

    def judged(self, dtype: str, tolerance: float) -> Comparison:
        comparison = Comparison(
            max_abs_error=self.max_abs,
            max_rel_error=self.max_rel,
            candidate_error=self.candidate_error,
            reference_error=self.reference_error,
            tolerance={dtype: tolerance},
            scaled_passes=self.bad_scaled == 0 or self._within_rounding(),
        )
        if self.bad and not self._within_rounding() and self.first is not None:
            index, got, want = self.first
            comparison.check = "values"
            comparison.detail = (
                f"{self.bad} of {self.elements} elements differ by up to {self.max_abs:.3g} "
                f"(tolerance {tolerance:g}); first at flat index {index}: {got:g} instead of "
                f"{want:g}"
            )
        return comparison

    def _within_rounding(self) -> bool:
        if self.bad_finiteness or self.candidate_error is None or self.reference_error is None:
            return False
        return self.candidate_error <= 2.0 * self.reference_error


def _scan(
    actual: torch.Tensor,
    expected: torch.Tensor,
    golden: Optional[torch.Tensor],
    rtol: float,
    atol: float,
    scaled_atol: float,
    rms: float,
    stress: bool,
) -> _Figures:
    figures = _Figures(elements=expected.numel())
    if golden is not None:
        figures.candidate_error = figures.reference_error = 0.0
    flat = [t.reshape(-1) if t is not None else None for t in (actual, expected, golden)]
    step = _chunk(expected)
    for start in range(0, expected.numel(), step):
        if _plainly_within(flat, start, min(atol, scaled_atol), rms, figures):
            continue
        a, e, g = (t[start : start + step].double() if t is not None else None for t in flat)
        assert a is not None and e is not None
        both = a.isfinite() & e.isfinite()
        same = (a == e) | (a.isnan() & e.isnan())
        odd = ~both & ~same
        if stress:
            odd &= e.isfinite()
        away = torch.where(both, (a - e).abs(), torch.zeros_like(a))
        far = [both & (away > limit + rtol * e.abs()) for limit in (atol, scaled_atol)]
        truth = e
        if g is not None:
            known = g.isfinite()
            truth = torch.where(known, g, e)
            off = torch.where(both, (a - truth).abs(), torch.zeros_like(a))
            far = [
                miss & (off > limit + rtol * truth.abs())
                for miss, limit in zip(far, (atol, scaled_atol))
            ]
            own = torch.where(both & known, (e - g).abs(), torch.zeros_like(a))
            figures.candidate_error = max(figures.candidate_error or 0.0, _top(off))
            figures.reference_error = max(figures.reference_error or 0.0, _top(own))
            away = off
        figures.max_abs = max(figures.max_abs, _top(away))
        scale = truth.abs().clamp_min(rms)
        relative = torch.where(both & (scale > 0), away / scale, away)
        figures.max_rel = max(figures.max_rel, _top(torch.where(both, relative, away)))
        figures.bad_finiteness += int(odd.sum())
        wrong = far[0] | odd
        figures.bad += int(wrong.sum())
        figures.bad_scaled += int((far[1] | odd).sum())
        if figures.first is None and bool(wrong.any()):
            place = int(wrong.to(torch.uint8).argmax())
            figures.first = (start + place, float(a[place]), float(e[place]))
    if figures.bad_finiteness:
        figures.max_abs = figures.max_rel = float("inf")
    return figures


def _plainly_within(
    flat: Sequence[Optional[torch.Tensor]], start: int, limit: float, rms: float, figures: _Figures
) -> bool:
    """The usual case at a fraction of the price: all elements finite and within the absolute
    tolerance alone, told in the tensors' own precision; of the golden values in float64 where there
    are some. False says nothing."""
    a, e = (t for t in flat[:2] if t is not None)
    stop = start + _chunk(e)
    a, e = a[start:stop], e[start:stop]
    if a.dtype not in (torch.float32, torch.float64):
        return False
    golden = flat[2]
    if golden is not None:
        exact = golden[start:stop]
        own = float((exact - e).abs_().max())
        if not math.isfinite(own):
            return False
        e = exact
    away = (a - e).abs_()
    top = float(away.max())
    # Also false for a NaN. The margin is above the rounding of one subtraction.
    if not top <= limit * (1.0 - 1e-5):
        return False
    figures.max_abs = max(figures.max_abs, top)
    if golden is not None:
        figures.candidate_error = max(figures.candidate_error or 0.0, top)
        figures.reference_error = max(figures.reference_error or 0.0, own)
    scale = e.abs().clamp_min_(rms) if rms > 0 else e.abs().clamp_min_(1.0)
    figures.max_rel = max(figures.max_rel, float(away.div_(scale).max()))
    return True


def _chunk(tensor: torch.Tensor) -> int:
    return _CHUNK if tensor.device.type == "cpu" else _DEVICE_CHUNK


def _top(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
