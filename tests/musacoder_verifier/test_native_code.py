"""What legality reads from artefacts, sources, machine code and a device's kernels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from musacoder_runtime.audit_watch import AuditWatch
from musacoder_runtime.device_witness import unordered
from musacoder_verifier.build_request import Artefact, BuildRequest, SourceText
from musacoder_verifier.lanes.opcodes import narrow
from musacoder_verifier.profile.kernel_profile import ProfiledKernel
from musacoder_verifier.stages import native_code
from musacoder_verifier.stages.device_work import DeviceWork
from musacoder_verifier.stages.evidence import Evidence
from musacoder_verifier.stages.legality import device_findings, judge, kernel_kind
from musacoder_verifier.stages.native_code import NativeCode, Place
from musacoder_verifier.verdict import Correctness

SOURCE = """
extern "C" int cublasSgemm_v2(int);
extern "C" void sgemm_(int);
extern "C" void* dlsym(void*, const char*);
extern "C" int mprotect(void*, unsigned long, int);
void f() {
  cublasSgemm_v2(1);
  sgemm_(1);
  dlsym(nullptr, "x");
  mprotect(nullptr, 0, 0);
}
"""


def _artefact(folder: Path, source: str) -> Artefact:
    (folder / "a.cpp").write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "a.so", "a.cpp"], cwd=folder, check=True)
    return Artefact("key", str(folder / "a.so"), "stock", "a")


async def test_an_object_names_whom_it_calls_with_the_line_that_does(tmp_path: Path) -> None:
    request = BuildRequest(
        "a",
        (SourceText("cpp", SOURCE.replace("cublasSgemm_v2", "cublasSgemm"), line=10),),
        extra_cflags=("-O3", "-ffast-math"),
        extra_cuda_cflags=("--use_fast_math",),
    )
    found = await native_code.inspect([_artefact(tmp_path, SOURCE)], [request])
    assert [(place.text, place.line) for place in found.vendor] == [
        ("cublasSgemm_v2", 11), ("sgemm_", 12),
    ]  # fmt: skip
    assert [place.text for place in found.loaders] == ["dlsym"]
    assert [place.text for place in found.rewriters] == ["mprotect"]
    assert found.flags == ("--use_fast_math", "-ffast-math")
    assert found.narrow == () and found.not_read is None


async def test_an_honest_object_names_nobody(tmp_path: Path) -> None:
    source = '#include <cmath>\nextern "C" float f(float x) { return std::exp(x); }\n'
    found = await native_code.inspect([_artefact(tmp_path, source)], [])
    assert not (found.vendor or found.loaders or found.rewriters or found.operators)


def test_the_kernels_of_the_sources_are_known_by_name() -> None:
    text = """
    __global__ void plain(const float* x) {}
    template <typename T> __global__ __launch_bounds__(256, 2) void typed(T* x) {}
    static __global__ void __launch_bounds__(128) bounded(int n);
    __device__ float helper(float x) { return x; }
    """
    request = BuildRequest("a", (SourceText("cuda", text),))
    assert native_code.kernels_of([request]) == {"plain", "typed", "bounded"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("plain(float const*)", "own"),
        ("void (anonymous namespace)::typed<float>(float*)", "own"),
        ("Memcpy DtoD (Device -> Device)", "memory"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
         "std::array<char*, 1>>(int, at::native::FillFunctor<float>)", "memory"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
         "(int)", "framework"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32", "vendor"),
        ("ampere_sgemm_128x64_nn", "vendor"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(cutlass::Params)", "vendor"),
        ("void cudnn::cnn::conv2d_grouped_direct_kernel<false>(float)", "vendor"),
        ("void gemv2T_kernel_val<int, float>(float)", "vendor"),
        ("somebody_elses_kernel(int)", "other"),
    ],
)  # fmt: skip
def test_whose_a_device_kernel_is(name: str, kind: str) -> None:
    assert kernel_kind(name, {"plain", "typed"}) == kind


def test_what_the_device_ran_becomes_findings() -> None:
    kernels = (
        ProfiledKernel("ampere_sgemm_128x64_nn", 1, 9e-6),
        ProfiledKernel("plain(float*)", 1, 1e-6),
    )
    found = device_findings(DeviceWork(kernels, ("plain(float*)",), None), {"plain"}, "k.py")
    assert {(f.rule, f.severity) for f in found} == {
        ("vendor-library", "violation"), ("other-stream", "violation"), ("small-share", "hint"),
    }  # fmt: skip
    assert device_findings(DeviceWork((), (), "no profiler"), {"plain"}, "k.py") == []


def test_a_kernel_that_does_not_wait_for_the_calls_stream_is_told_by_its_start() -> None:
    spin = ("at::cuda::(anonymous namespace)::spin_kernel(long)", 100, 100_000, 7)
    assert unordered([("alone", 5, 10, 7)]) == []
    assert unordered([spin, ("early", 20_000, 10, 9), ("after", 200_000, 10, 9)]) == ["early"]


@pytest.mark.parametrize("known", [True, False])
def test_a_kernel_that_the_calls_stream_does_not_wait_for_is_told_by_its_end(known: bool) -> None:
    """`known`: whether this torch tells the streams."""
    name, own, other = "spin_kernel(long)", (7 if known else None), (9 if known else None)
    events = [
        (name, 0, 100_000, own),
        ("own(float*)", 110_000, 5_000, own),
        ("joined(float*)", 110_000, 4_000, other),
        (name, 116_000, 1_000, own),
    ]
    assert unordered(events) == []
    assert unordered([*events, ("left(float*)", 115_000, 30_000, other)]) == ["left(float*)"]
    # The name of what keeps the stream busy hides nothing.
    assert unordered([*events, (name, 115_000, 30_000, other)]) == [name]


def test_words_in_comments_are_no_code() -> None:
    text = (
        '// cudaLimitPersistingL2CacheSize, __half\n/* __float2half\n*/ f("// half2"); __half2 x;'
    )
    assert set(native_code._narrow_types([SourceText("cuda", text)])) == {"half2", "__half2"}


def test_the_word_of_a_cache_set_aside_is_a_hint_and_the_deed_a_violation() -> None:
    native = NativeCode(extensions=1, persisting=(Place("cudaLimitPersistingL2CacheSize", 3),))
    for changes, verdict in ((set(), "pass"), ({("persisting-cache", "9 bytes")}, "fail")):
        evidence = Evidence(runs=1, changes=changes)
        found = judge(evidence, [], native, None, policy="kernelbench", path="k.py")
        assert found.verdict == verdict, found


@pytest.mark.parametrize(
    ("text", "of_headers"),
    [
        ("#include <cub/cub.cuh>\n__global__ void k() {}", True),
        ("// dlsym is not called here\n# include <thrust/sort.h>\n", True),
        ("__global__ void k() {}", False),
        ("#include <cub/cub.cuh>\nauto f = dlsym(0, s);", False),
        ("#include <cub/cub.cuh>\n#define JOIN(a, b) a##b\nauto f = JOIN(dl, sym)(0, s);", False),
        ('// #include <cub/cub.cuh>\nauto f = "cub/";', False),
    ],
)
def test_what_a_header_of_the_toolkit_looks_for_is_not_the_candidates_doing(
    text: str, of_headers: bool
) -> None:
    assert native_code._of_headers({"dlsym"}, [SourceText("cuda", text)]) is of_headers
    assert not native_code._of_headers(set(), [SourceText("cuda", text)])


def test_its_own_library_is_known_by_whatever_path_it_was_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "a.so").touch()
    (tmp_path / "link").symlink_to(folder)
    native = NativeCode(extensions=1, paths=(str(tmp_path / "link" / "a.so"),))
    for path in (f"{folder}/a.so", f"{folder}/a.so (deleted)", f"{tmp_path}/link/a.so"):
        evidence = Evidence(runs=1, libraries={path})
        found = judge(evidence, [], native, None, policy="native-only", path="k.py")
        assert found.findings == ()


LISTING = """
        /*0310*/  HMMA.1688.F32.TF32 R4, R8, R12, R4 ;
        /*0320*/  HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0330*/  F2FP.BF16.F32.PACK_AB R3, R4, R5 ;
        /*0340*/  FFMA R0, R1, R2, R3 ;
        /*0350*/  IMMA.16832.S8.S8 R4, R8, R12, R4 ;
        /*0360*/  F2F.F64.F32 R2, R4 ;
        /*0370*/  HFMA2.MMA R5, -RZ, RZ, 0, 0 ;
"""


def test_narrow_arithmetic_is_read_from_machine_code() -> None:
    assert set(narrow(LISTING)) == {
        "HMMA.1688.F32.TF32", "HMMA.16816.F32", "F2FP.BF16.F32.PACK_AB",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("narrow_code", "error", "severity"),
    [(("HMMA.1688.F32.TF32",), 3e-4, "violation"), ((), 3e-4, "hint"), (("HMMA",), 1e-7, None)],
)
def test_precision_condemns_where_code_and_figures_agree(
    narrow_code: tuple[str, ...], error: float, severity: str | None
) -> None:
    correctness = Correctness(
        True, 5, 5, max_rel_error=error, tolerance={"float32": 1e-4},
        candidate_fp64_error=error, reference_fp64_error=1e-7,
    )  # fmt: skip
    evidence = Evidence(runs=1)
    native = NativeCode(extensions=1, narrow=narrow_code)
    found = judge(evidence, [], native, correctness, policy="native-only", path="k.py")
    told = [f.severity for f in found.findings if f.rule == "lower-precision"]
    assert told == ([severity] if severity else [])


def test_a_library_that_computes_is_told_from_one_that_does_not() -> None:
    evidence = Evidence(
        runs=1,
        libraries={"/x/libopenblas-r0.so", "/x/libcuda.so.1", "/x/libfoo.so", "/cache/a.so"},
    )
    native = NativeCode(extensions=1, paths=("/cache/a.so",))
    found = judge(evidence, [], native, None, policy="native-only", path="k.py")
    assert {(f.rule, f.severity) for f in found.findings} == {
        ("vendor-library", "violation"), ("library-loaded", "hint"),
    }  # fmt: skip


def test_only_what_the_candidates_own_code_asks_for_counts() -> None:
    watch = AuditWatch()
    watch.watching = True
    exec(compile("import collections\ncollections.namedtuple('P', 'a b')", "kernel.py", "exec"))
    assert watch.found == set()
    exec(compile("import sys, gc\nsys._getframe()\ngc.get_objects()", "kernel.py", "exec"))
    exec(compile("import ctypes\nctypes.CDLL(None).abs", "kernel.py", "exec"))
    watch.watching = False
    assert {rule for rule, _ in watch.found} == {"searches-process", "finds-code"}
    assert any("abs" in what for _, what in watch.found)
    seen = len(watch.found)
    exec(compile("import gc\ngc.get_referrers(1)", "kernel.py", "exec"))
    assert len(watch.found) == seen
