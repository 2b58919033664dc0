"""Which compiler errors are those of the source, whatever the headers are."""

from __future__ import annotations

import pytest
from musacoder_verifier.diagnostics import parse
from musacoder_verifier.lanes.vocabulary import Vocabulary, independent_of_headers

WORDS = Vocabulary(
    words=frozenset({"Tensor", "relu", "TORCH_CHECK", "TORCH_LIBRARY", "rare"}),
    macros=frozenset({"TORCH_CHECK", "TORCH_LIBRARY"}),
    facade_macros=frozenset({"TORCH_CHECK"}),
    cuda_words=frozenset({"C10_CUDA_KERNEL_LAUNCH_CHECK", "CUDAEvent"}),
)


def judged(error: str, source: str = "at::Tensor f() { TORCH_CHECK(x); }") -> bool:
    output = f"musacoder_source_0:1:1: error: {error}\n"
    return independent_of_headers(parse(output), [source], WORDS)


@pytest.mark.parametrize(
    "error",
    [
        "‘qwertz’ was not declared in this scope",
        "'qwertz' was not declared in this scope; did you mean 'x'?",
        "use of undeclared identifier 'qwertz'",
        "unknown type name 'qwertz'",
        'identifier "qwertz" is undefined',
        "expected ‘;’ before ‘}’ token",
        'missing terminating " character',
        "stray ‘@’ in program",
    ],
)
def test_errors_of_the_source_itself(error: str):
    assert judged(error)


@pytest.mark.parametrize(
    "error",
    [
        "‘rare’ was not declared in this scope",  # the real headers may declare it
        "‘class at::Tensor’ has no member named ‘qwertz’",
        "no matching function for call to ‘f(int)’",
        "use of deleted function ‘void f()’",
        'identifier "rare" is undefined',
        'identifier "cublasSgemm" is undefined',  # PyTorch's headers bring cuBLAS's along
        "‘qwertz’ is not a member of ‘torch’",
    ],
)
def test_what_the_real_headers_may_take(error: str):
    assert not judged(error)


def test_a_macro_that_the_facade_lacks_looks_like_a_syntax_error():
    error = "expected constructor, destructor, or type conversion before ‘(’ token"
    assert not judged(error, "TORCH_LIBRARY(a, m) {}")
    assert judged(error, "int f(")


def test_what_a_cuda_header_declares_is_known_where_one_is_included():
    error = 'identifier "C10_CUDA_KERNEL_LAUNCH_CHECK" is undefined'
    source = "void f() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }"
    assert judged(error, source)
    assert not judged(error, f"#include <c10/cuda/CUDAStream.h>\n{source}")


def test_headers_of_its_own_may_declare_anything():
    error = "‘qwertz’ was not declared in this scope"
    assert not judged(error, "#include <torch/csrc/jit/api/module.h>\nint x = qwertz;")
    assert judged(error, "#include <torch/extension.h>\nint x = qwertz;")
    assert judged(error, "#include <ATen/cuda/CUDAContext.h>\nint x = qwertz;")


def test_only_the_first_error_decides():
    output = (
        "musacoder_source_0:1:1: error: ‘rare’ was not declared in this scope\n"
        "musacoder_source_0:1:9: error: expected ‘;’ before ‘x’\n"
    )
    assert not independent_of_headers(parse(output), ["rare x;"], WORDS)


def test_an_error_outside_the_source_proves_nothing():
    output = "/inc/a.h:1:1: error: expected ‘;’ before ‘x’\n"
    assert not independent_of_headers(parse(output), ["int x;"], WORDS)
