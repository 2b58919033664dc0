"""Fingerprints of tensors: what they tell apart, and what they do not depend on."""

from __future__ import annotations

import pytest
import torch
from musacoder_runtime import fingerprint


def test_layout_and_place_in_memory_do_not_matter() -> None:
    values = torch.arange(1000, dtype=torch.float32).reshape(20, 50)
    expected = fingerprint.of(values)
    assert fingerprint.of(values.t().contiguous().t()) == expected
    shifted = torch.empty(4001, dtype=torch.uint8)[1:].view(torch.uint8)
    shifted.copy_(values.reshape(-1).view(torch.uint8))
    assert fingerprint.of(shifted) == expected
    assert fingerprint.of(torch.nn.Parameter(values)) == expected


def test_order_values_and_length_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fingerprint._CHUNK_BYTES, "cpu", 64)
    values = torch.randn(333, generator=torch.Generator().manual_seed(1))
    swapped = values.clone()
    swapped[[5, 300]] = swapped[[300, 5]]
    nudged = values.clone()
    nudged[332] = torch.nextafter(nudged[332], torch.tensor(9.0))
    negated = -values
    found = [values, swapped, nudged, negated, values[:-1], torch.cat([values, torch.zeros(1)])]
    assert len({fingerprint.of(each) for each in found}) == len(found)


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randint(0, 255, (1024,), dtype=torch.uint8)
    whole = fingerprint.of(values)
    monkeypatch.setitem(fingerprint._CHUNK_BYTES, "cpu", 64)
    assert fingerprint.of(values) == whole


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(0), torch.tensor(True), torch.ones(3, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64).conj(), torch.arange(7, dtype=torch.int16)[1:],
    ],
)  # fmt: skip
def test_every_kind_of_tensor_has_one(values: torch.Tensor) -> None:
    assert fingerprint.of(values) == fingerprint.of(values.clone())
    if values.is_complex():
        assert fingerprint.of(values) != fingerprint.of(values.resolve_conj().conj())


@pytest.mark.gpu
def test_the_device_makes_no_difference() -> None:
    for dtype in (torch.float32, torch.float16, torch.int64):
        values = torch.randn(1_000_003).mul_(100).to(dtype)
        assert fingerprint.of(values.cuda()) == fingerprint.of(values)
