"""The judge and the test of the judge, in this process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from musacoder_runtime import judge, oracle, recipes, tensor_tree


def _flat(*leaves: Any) -> tuple[Any, list[Any]]:
    return tensor_tree.flatten(leaves[0] if len(leaves) == 1 else tuple(leaves))


def _compare(actual: Any, expected: Any, **options: Any) -> judge.Comparison:
    return judge.compare_trees(_flat(actual), _flat(expected), **options)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("dtype", "error", "passes"),
    [
        (torch.float32, 5e-5, True),
        (torch.float32, 3e-4, False),
        (torch.float16, 5e-3, True),
        (torch.float16, 5e-2, False),
        (torch.bfloat16, 5e-2, False),
    ],
)
def test_tolerance_is_the_dtypes(dtype: torch.dtype, error: float, passes: bool) -> None:
    expected = torch.zeros(64, dtype=dtype)
    assert _compare(expected + error, expected).passes is passes


def test_shape_dtype_structure_and_type_come_before_values() -> None:
    value = torch.ones(2, 3)
    assert _compare(value.reshape(3, 2), value).check == "shape"
    assert _compare(value[0], value).check == "shape"  # allclose would broadcast
    assert _compare(value.double(), value).check == "dtype"
    assert _compare((value, value), value).check == "structure"
    assert _compare([value], (value,)).passes
    unsupported = {"kind": "unsupported", "type": "LazyTensor"}
    assert judge.compare_trees(({"leaf": 0}, [unsupported]), _flat(value)).check == "output_type"


def test_nan_and_infinity_must_stand_where_the_reference_has_them() -> None:
    expected = torch.tensor([float("nan"), float("inf"), 1.0])
    assert _compare(expected.clone(), expected).passes
    assert not _compare(torch.tensor([0.0, float("inf"), 1.0]), expected).passes
    assert not _compare(torch.tensor([float("nan"), -float("inf"), 1.0]), expected).passes
    assert not _compare(torch.tensor([float("nan"), float("inf"), float("nan")]), expected).passes


def test_integers_and_bools_are_exact() -> None:
    expected = torch.arange(10)
    wrong = expected.clone()
    wrong[3] = 4
    assert _compare(wrong, expected).check == "values"
    assert "first 4 instead of 3" in _compare(wrong, expected).detail
    assert _compare(torch.tensor([True]), torch.tensor([True])).passes


def test_no_kernel_fails_for_the_references_own_rounding() -> None:
    golden = torch.zeros(8, dtype=torch.float64)
    reference = torch.full((8,), 1e-3)  # badly rounded
    assert not _compare(-reference, reference).passes
    assert _compare(-reference, reference, golden=[golden]).passes
    assert not _compare(-3 * reference, reference, golden=[golden]).passes


def test_near_miss_is_over_tolerance_and_small() -> None:
    expected = 1.0 + torch.rand(100)
    near = _compare(expected * (1 + 5e-4), expected)
    assert near.check == "values" and near.near_miss
    assert not _compare(expected * 1.1, expected).near_miss


def test_trees_of_scalars_and_none_are_compared() -> None:
    assert _compare({"a": None, "b": 2, "c": 0.5}, {"a": None, "b": 2, "c": 0.50001}).passes
    assert _compare({"a": 1}, {"a": 2}).check == "values"
    assert _compare({"a": True}, {"a": 1}).check == "values"


def _oracle(expected: list[torch.Tensor], inputs: list[torch.Tensor], own: int) -> str:
    results: list[oracle.ImposterResult] = []
    previous = None
    for index, value in enumerate(expected):
        flat = _flat(value)
        results += oracle.probe(flat, None, [inputs[index]], previous, own=index < own)
        previous = flat
    return oracle.conclude(results)[0]


def test_zeros_for_softmax_are_caught_by_wider_inputs() -> None:
    own = torch.rand(4, 100_000)
    (wide,) = recipes.transform([own], "heavy", 0)
    assert judge.compare(torch.zeros_like(own), own.softmax(-1), None).passes
    assert _oracle([own.softmax(-1), wide.softmax(-1)], [own, wide], 1) == "widened"
    # Without wider inputs a tolerance scaled to the output's size must do.
    assert _oracle([own.softmax(-1)], [own], 1) == "scaled"


def test_a_copy_for_layer_norm_is_caught() -> None:
    own = torch.randn(4, 1000)
    normal = torch.nn.functional.layer_norm(own, (1000,))
    assert _oracle([normal], [own], 1) == "strong"


def test_what_no_input_can_tell_apart_is_weak_and_a_constant_by_construction_is_not() -> None:
    nearly_constant = 1.0 + 1e-6 * torch.rand(64)
    assert _oracle([nearly_constant], [torch.randn(64)], 1) == "weak"
    assert _oracle([torch.zeros(64)] * 2, [torch.randn(64)] * 2, 1) == "strong"


def test_recipes_are_the_same_bits_each_time_and_keep_layout_and_integers() -> None:
    base = torch.randn(6, 8)
    inputs = [base.t(), torch.arange(5), base[:, ::2], torch.ones(3, 1).expand(3, 4), 7]
    for distribution in recipes.STRESS:
        first = recipes.transform(inputs, distribution, 3)
        assert recipes.digest(first) == recipes.digest(recipes.transform(inputs, distribution, 3))
        assert [t.stride() for t in first[:4]] == [t.stride() for t in inputs[:4]]  # type: ignore[attr-defined]
        assert torch.equal(first[1], inputs[1]) and first[4] == 7  # type: ignore[arg-type]
        assert not torch.equal(first[0], inputs[0])  # type: ignore[arg-type]


def test_refill_keeps_addresses_and_changes_values() -> None:
    old, new = [torch.randn(4, 4).t()], [torch.randn(4, 4).t()]
    address = old[0].data_ptr()
    filled = recipes.refill(old, new)
    assert filled[0].data_ptr() == address and torch.equal(filled[0], new[0])
    other = [torch.randn(2)]
    assert recipes.refill(old, other)[0] is other[0]
