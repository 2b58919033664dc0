"""The size rule of the KernelBench measurement."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from musacoder_runtime.children.shrink import (
    LEAST,
    MOVED,
    SMALL,
    main,
    operations,
    scale_constant,
    scale_source,
)


@given(st.integers(0, 1 << 20), st.integers(0, 12))
def test_a_size_keeps_its_kind(value: int, halvings: int) -> None:
    scaled = scale_constant(value, 0.5**halvings)
    if value <= SMALL:
        assert scaled == value
    else:
        assert LEAST <= scaled <= value
        assert scaled % 8 == 0 or value % 8 != 0


def test_equal_sizes_stay_equal_and_code_stays_untouched() -> None:
    function = "def get_inputs():\n    return 4096\n"
    source = "rows = 4096\nshape = (4096, 3)\nbig = 8192 * 2\neps = 1e-5\n" + function
    scaled = "rows = 1024\nshape = (1024, 3)\nbig = 4096\neps = 1e-5\n" + function
    assert scale_source(source, 0.25) == scaled


MATMUL = """
import torch
N = 2048
class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b).t()
def get_inputs():
    return [torch.rand(N, N), torch.rand(N, N)]
def get_init_inputs():
    return []
"""


class Answers:
    def __init__(self) -> None:
        self.message: dict[str, Any] = {}

    def send(self, message: dict[str, Any]) -> None:
        self.message = message


def shrunk(source: str, elements: int, most: int) -> dict[str, Any]:
    answers = Answers()
    main(answers, {"source": source, "elements": elements, "operations": most, "threads": 1})
    return answers.message


def test_operations_are_those_of_contractions_and_of_moved_elements() -> None:
    n = 64
    spec = {"source": MATMUL.replace("2048", str(n))}
    # The product reads two matrices and writes one, relu reads and writes one, a view moves none.
    assert operations(spec) == 2 * n**3 + MOVED * (3 + 2) * n * n


def test_the_size_depends_on_counts_alone() -> None:
    found = shrunk(MATMUL, 1 << 22, 1 << 24)
    assert found["factor"] == 1 / 16
    assert "N = 128" in found["source"]
    assert found["operations"] <= 1 << 24 < operations({"source": MATMUL.replace("2048", "256")})


def test_small_sizes_are_scaled_where_the_large_ones_are_not_enough() -> None:
    wide = MATMUL.replace("N = 2048", "N = 32\nK = 11")
    found = shrunk(wide, 1 << 10, 1 << 30)
    assert "N = 16\nK = 11" in found["source"]


def test_what_cannot_be_shrunk_says_by_how_much() -> None:
    assert shrunk(MATMUL, 1 << 22, 10) == {
        "error": f"{2 * 8**3 + MOVED * 5 * 64} operations at the smallest size"
    }
