"""The size rule of the KernelBench measurement."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from musacoder_runtime.children.shrink import LEAST, SMALL, scale_constant, scale_source


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
