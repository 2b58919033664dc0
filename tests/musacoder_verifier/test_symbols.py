"""Operators and vendor functions in the names of real objects."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from musacoder_verifier.lanes.symbols import operators_called, recording_switches, vendor_functions

STOCK = """
namespace at { struct Tensor; namespace _ops {
struct add_Tensor { static void call(const Tensor&); };
struct empty_memory_format { static void call(); };
} }
extern "C" int cublasSgemm_v2(int);
void f(const at::Tensor& x) {
  at::_ops::add_Tensor::call(x);
  at::_ops::empty_memory_format::call();
  cublasSgemm_v2(1);
}
"""
FAST = r"""
extern "C" int mc_empty(int);
int f() {
  __asm__ volatile(".pushsection .musacoder.operators,\"a\",@progbits\n\t"
                   ".asciz \"aten::mul.Scalar\"\n\t.asciz \"aten::relu.\"\n\t.popsection");
  return mc_empty(1);
}
"""


def built(source: str, folder: Path) -> Path:
    (folder / "a.cpp").write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "a.so", "a.cpp"], cwd=folder, check=True)
    return folder / "a.so"


def test_a_stock_object_names_operators_as_symbols(tmp_path: Path):
    path = built(STOCK, tmp_path)
    assert operators_called(path) == ("aten::add_Tensor", "aten::empty_memory_format")
    assert vendor_functions(path) == ("cublasSgemm_v2",)


def test_a_fast_object_carries_them_in_a_section(tmp_path: Path):
    path = built(FAST, tmp_path)
    assert operators_called(path) == ("aten::empty.memory_format", "aten::mul.Scalar", "aten::relu")
    assert vendor_functions(path) == ()


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01", b"hello" * 100])
def test_what_is_no_object_is_a_value_error(tmp_path: Path, content: bytes):
    path = tmp_path / "a.so"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="ELF object"):
        operators_called(path)


def test_an_object_that_can_hide_operators_says_so(tmp_path: Path):
    source = """
    namespace at {
    void enableRecordFunction(bool);
    struct DisableRecordFunctionGuard { DisableRecordFunctionGuard(); };
    }
    void f() { at::enableRecordFunction(false); at::DisableRecordFunctionGuard guard; }
    """
    path = built(source, tmp_path)
    assert recording_switches(path) == ("DisableRecordFunctionGuard", "enableRecordFunction")
    assert recording_switches(built(STOCK, tmp_path)) == ()
