"""Which compiler errors are those of the source, whatever the headers are."""

from __future__ import annotations

import dataclasses

import pytest
from musacoder_verifier.diagnostics import parse
from musacoder_verifier.lanes.vocabulary import Header, Vocabulary, independent_of_headers

WORDS = Vocabulary(
    words=frozenset({"Tensor", "relu", "TORCH_CHECK", "TORCH_LIBRARY", "rare"}),
    macros=frozenset({"TORCH_CHECK", "TORCH_LIBRARY"}),
    facade_macros=frozenset({"TORCH_CHECK"}),
    headers={
        "ATen/cuda/CUDAContext.h": Header(frozenset({"getStream"}), ("c10/cuda/CUDAStream.h",)),
        "c10/cuda/CUDAStream.h": Header(frozenset({"C10_CUDA_KERNEL_LAUNCH_CHECK", "Stream"})),
        "c10/cuda/CUDAGuard.h": Header(frozenset({"OptionalCUDAGuard"})),
    },
    vendor_words=frozenset({"cublasSgemm_v2", "CUBLAS_OP_N", "CUBLAS_OP", "_X", "cudaMalloc"}),
)
USES = "at::Tensor f() { TORCH_CHECK(x); auto y = qwertz(x); }"


def judged(*errors: str, source: str = USES) -> bool:
    output = "".join(f"musacoder_source_0:1:1: error: {error}\n" for error in errors)
    return bool(independent_of_headers(parse(output), [source], WORDS))


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
        "‘relu’ is not a member of ‘at::native’",  # another header may bring it into this one
        "‘qwertz’ is not a member of ‘torch’",  # the source may declare it: it is not all qualified
        "‘unnamed’ was not declared in this scope",  # a macro made it, perhaps the facade's
    ],
)
def test_what_the_real_headers_may_take(error: str):
    assert not judged(error)


def test_a_macro_that_the_facade_lacks_looks_like_a_syntax_error():
    error = "expected constructor, destructor, or type conversion before ‘(’ token"
    assert not judged(error, source="TORCH_LIBRARY(a, m) {}")
    assert judged(error, source="int f(")


def test_what_a_cuda_header_declares_is_known_where_one_is_included():
    error = 'identifier "C10_CUDA_KERNEL_LAUNCH_CHECK" is undefined'
    source = "void f() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }"
    assert judged(error, source=source)
    assert judged(error, source=f"#include <c10/cuda/CUDAGuard.h>\n{source}")
    for header in ("c10/cuda/CUDAStream.h", "ATen/cuda/CUDAContext.h"):
        assert not judged(error, source=f"#include <{header}>\n{source}")


def test_headers_of_its_own_may_declare_anything():
    error = "‘qwertz’ was not declared in this scope"
    assert not judged(error, source="#include <torch/csrc/jit/api/module.h>\nint x = qwertz;")
    assert judged(error, source="#include <torch/extension.h>\nint x = qwertz;")
    assert judged(error, source="#include <ATen/cuda/CUDAContext.h>\nint x = qwertz;")


def test_only_the_first_error_decides():
    output = (
        "musacoder_source_0:1:1: error: ‘rare’ was not declared in this scope\n"
        "musacoder_source_0:1:9: error: expected ‘;’ before ‘x’\n"
    )
    assert not independent_of_headers(parse(output), ["rare x;"], WORDS)


def test_an_error_outside_the_source_proves_nothing():
    output = "/inc/a.h:1:1: error: expected ‘;’ before ‘x’\n"
    assert not independent_of_headers(parse(output), ["int x;"], WORDS)


def test_a_vendors_name_is_unknown_where_the_vendor_does_not_have_it():
    def undefined(name: str, words: frozenset[str] = WORDS.vendor_words) -> bool:
        output = f'musacoder_source_0:1:1: error: identifier "{name}" is undefined\n'
        known = dataclasses.replace(WORDS, vendor_words=words)
        return bool(independent_of_headers(parse(output), [f"auto x = {name};"], known))

    assert undefined("CUBLAS_FILL_UPPER") and undefined("cudaMallocEverything")
    # PyTorch's headers bring the vendor's along.
    assert not undefined("cublasSgemm_v2") and not undefined("cudaMalloc")
    assert not undefined("CUBLAS_OP_X"), "a macro may paste it together"
    assert not undefined("cusparseCreate"), "the headers of this library are not here"
    assert not undefined("CUBLAS_FILL_UPPER", frozenset())


@pytest.mark.parametrize(
    "error",
    [
        'namespace "at::cuda" has no member "OptionalCUDAGuard"',
        "‘OptionalCUDAGuard’ is not a member of ‘at::cuda’",
        "no member named 'OptionalCUDAGuard' in namespace 'at::cuda'",
    ],
)
def test_a_member_that_no_reached_header_mentions(error: str):
    source = "void f(T t) { at::cuda::OptionalCUDAGuard guard(t); }  // OptionalCUDAGuard"
    assert judged(error, source=f"#include <ATen/cuda/CUDAContext.h>\n{source}")
    assert not judged(error, source=f"#include <c10/cuda/CUDAGuard.h>\n{source}")
    declared = "namespace at { namespace cuda { struct OptionalCUDAGuard; } }"
    assert not judged(error, source=f"{declared}\n{source}")
    assert not judged('namespace "mine" has no member "qwertz"', source="int x = mine::qwertz;")


def test_an_unknown_call_decides_after_a_member_that_the_facade_lacks():
    lacks = 'namespace "at" has no member "rare"'
    unknown = 'identifier "CHECK_IT" is undefined'
    before = "void f() { auto d = at::rare(1); "
    source = before + "CHECK_IT(); }"
    output = "".join(f"musacoder_source_0:1:1: error: {said}\n" for said in (lacks, unknown))
    told = independent_of_headers(parse(output), [source], WORDS)
    assert [message.text for message in told] == [unknown], "the facade's fault is not told"
    assert not judged(lacks, source=before + "CHECK_IT(); }")
    # What the source declares may be unknown only because of the first error.
    for use in ("auto CHECK_IT = at::rare(2); CHECK_IT(); }", "x = CHECK_IT(); }"):
        assert not judged(lacks, unknown, source=before + use)
    assert not judged("no matching function for call to ‘f()’", unknown, source=before)
