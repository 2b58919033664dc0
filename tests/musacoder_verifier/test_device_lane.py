"""Device sources: what is generated for them, how nvcc is driven, what comes out of it."""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path

import pytest
from compiled import load_in_process
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.build_request import BuildRequest, SourceText, words
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.kernel_resources import KernelResources, ptxas_report
from musacoder_verifier.lanes import device, fast, nvcc_steps, std_names
from musacoder_verifier.lanes.prepare import torch_include
from musacoder_verifier.stages.compile import CompileOutcome, compile_requests
from musacoder_verifier.toolchain import Compiler, Toolkit, cuda_toolkit
from musacoder_verifier.worker import WorkerInfo

HAS_NVCC = cuda_toolkit() is not None
needs_nvcc = pytest.mark.skipif(not HAS_NVCC, reason="nvcc is not installed here")

SCALE = """
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
template <typename scalar_t>
__global__ void scale_kernel(const scalar_t* x, scalar_t* y, float by, int64_t n) {
  __shared__ float kept;
  if (threadIdx.x == 0) kept = by;
  __syncthreads();
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * kept);
}
torch::Tensor scale(torch::Tensor x, double by) {
  TORCH_CHECK(x.is_cuda(), "x must be on a GPU, is on ", x.device());
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", [&] {
    scale_kernel<scalar_t><<<(x.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<float>(by), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""


def scale(text: str = SCALE, **fields: object) -> BuildRequest:
    """A request of its own: no cache knows it."""
    sources = (
        SourceText("cpp", "torch::Tensor scale(torch::Tensor x, double by);\n", line=1, column=1),
        SourceText("cuda", f"{text}// {uuid.uuid4().hex}\n", line=11, column=1),
    )
    return BuildRequest("scale_ext", sources, (("scale", "scale"),), **fields)  # type: ignore[arg-type]


async def compiled(
    request: BuildRequest, info: WorkerInfo, cache: Path, name: str = "cuda"
) -> CompileOutcome:
    return await compile_requests(
        [request],
        backend=name,
        worker_info=info,
        cache_dir=cache,
        candidate=Candidate("", path="/project/candidate.py"),
        timeout=300.0,
        lane="fast",
    )


def dynamic(library: str) -> str:
    done = subprocess.run(
        ["readelf", "--dynamic", "--dyn-syms", "-W", library], capture_output=True, check=True
    )
    return done.stdout.decode()


@needs_nvcc
@pytest.mark.asyncio(loop_scope="session")
async def test_a_kernel_is_compiled_linked_and_kept(worker_info: WorkerInfo, compile_cache: Path):
    request = scale()
    outcome = await compiled(request, worker_info, compile_cache)
    assert outcome.failure is None, outcome.failure
    kernels = outcome.report.resources
    assert len(kernels) == 4  # double, float, Half, BFloat16
    assert {kernel.architecture for kernel in kernels} == {
        "sm_{}{}".format(*backend("cuda").capability)  # type: ignore[attr-defined]
    }
    assert all("scale_kernel" in kernel.symbol for kernel in kernels)
    assert all(kernel.registers > 0 and kernel.shared_bytes == 4 for kernel in kernels)
    assert any("sm_" in flag for flag in outcome.report.flags)
    table = dynamic(outcome.artefacts[0].path)
    # One runtime a process, that of torch: it is named, not linked in.
    assert "libcudart.so" in table
    assert any("UND" in line and "cudaLaunchKernel" in line for line in table.splitlines())
    assert "libtorch" not in table
    again = await compiled(request, worker_info, compile_cache)
    assert again.report.cached
    assert again.report.resources == kernels
    assert again.artefacts == outcome.artefacts


RUN = """
def refused(*arguments):
    try:
        m.scale(*arguments)
    except RuntimeError as error:
        return str(error)
    return None

side = torch.cuda.Stream()
right = []
for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    x = torch.linspace(-3, 3, 1000, device="cuda", dtype=dtype)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        y = m.scale(x, 2.0)
        behind = not side.query()  # the launch waits for what its stream does before it
    side.synchronize()
    right.append(behind and bool(torch.equal(y, (x.float() * 2).to(dtype))))
empty = refused(torch.empty(0, device="cuda"), 2.0)
print(json.dumps({
    "right": right,
    "on_cpu": refused(torch.zeros(4), 2.0),
    "no_blocks": empty,
    "after": bool(torch.equal(m.scale(x, 2.0), x * 2)),
}))
"""


@needs_nvcc
@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
async def test_a_kernel_runs_on_the_stream_that_is_current(
    worker_info: WorkerInfo, compile_cache: Path
):
    outcome = await compiled(scale(), worker_info, compile_cache)
    assert outcome.failure is None, outcome.failure
    found = await load_in_process(outcome.artefacts[0], RUN)
    assert found["right"] == [True] * 4
    assert found["on_cpu"] == "x must be on a GPU, is on cpu"
    # A launch that CUDA refuses raises in PyTorch's words, whichever of its errors CUDA gives for
    # no blocks (12: invalid configuration argument, 13: invalid argument), and leaves none behind.
    assert found["no_blocks"] is not None
    assert re.match("CUDA error: invalid (configuration )?argument\\b", found["no_blocks"])
    assert found["after"]


@needs_nvcc
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("kept = by", "kept = qwertz", 17),  # in the kernel
        ("return y;", "return y", 30),  # in the host code
        ("x.numel());\n  });", "x.numel(), 1);\n  });", 26),  # in a launch
    ],
)
async def test_an_error_stands_on_the_candidates_own_line(
    worker_info: WorkerInfo, compile_cache: Path, before: str, after: str, line: int
):
    outcome = await compiled(scale(SCALE.replace(before, after)), worker_info, compile_cache)
    assert outcome.failure is not None
    assert outcome.failure.status == "compile_error"
    assert outcome.failure.file == "/project/candidate.py"
    assert outcome.failure.line is not None
    assert abs(outcome.failure.line - line) <= 1, outcome.failure


@pytest.mark.asyncio(loop_scope="session")
async def test_the_cpu_takes_no_device_sources(worker_info: WorkerInfo, compile_cache: Path):
    outcome = await compiled(scale(), worker_info, compile_cache, "cpu")
    assert outcome.failure is not None
    assert outcome.failure.status == "compile_error"
    assert "device sources" in outcome.failure.message


@pytest.mark.asyncio(loop_scope="session")
async def test_a_missing_device_compiler_is_the_machines_fault(
    worker_info: WorkerInfo, compile_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("musacoder_verifier.toolchain._toolkit", lambda *_: None)
    outcome = await compiled(scale(), worker_info, compile_cache)
    assert outcome.failure is not None
    assert outcome.failure.status == "infra_error"
    assert "nvcc was not found" in outcome.failure.message


@pytest.mark.parametrize(
    "flag", ["-rdc=true", "--relocatable-device-code=true", "-dc", "-dlto", "--dlink-time-opt"]
)
def test_a_device_link_takes_the_stock_lane(flag: str):
    request = scale(extra_cuda_cflags=("-O3", flag))
    assert flag in (fast.unsuitable(request, "2.13.0") or "")
    assert fast.unsuitable(scale(extra_cuda_cflags=("-O3", "--use_fast_math")), "2.13.0") is None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["", "-O3"], ["-O3"]),
        (["-O3 -DA='x y'"], ["-O3", "-DA=x y"]),
        (["-DB='"], ["-DB='"]),
        ([], []),
    ],
)
def test_flags_are_split_as_the_shell_of_a_build_does(flags: list[str], expected: list[str]):
    assert words(flags) == expected


def test_an_architecture_of_its_own_replaces_the_backends(compiler: Compiler):
    nvcc = device.DeviceCompiler(
        Toolkit("/x/bin/nvcc", "/x", "PATH"), compiler, ("-gencode=arch=compute_90,code=sm_90",),
        ("-O2",), None,
    )  # fmt: skip
    assert nvcc.unit_flags(scale())[:2] == ["-gencode=arch=compute_90,code=sm_90", "-Xcompiler=-O2"]
    own = nvcc.unit_flags(scale(extra_cuda_cflags=("-O3 -arch=sm_80",)))
    assert own == ["-Xcompiler=-O2", "-Xptxas=-v", "-O3", "-arch=sm_80"]


def test_packages_bring_libraries_under_versioned_names(tmp_path: Path, compiler: Compiler):
    (tmp_path / "libcublas.so.13").touch()
    (tmp_path / "libcurand.so").touch()
    nvcc = device.DeviceCompiler(
        Toolkit("/x/bin/nvcc", "/x", "PATH"), compiler, (), (), None, (str(tmp_path),)
    )
    assert nvcc.libraries(["-lcublas", "-lm"]) == [f"-L{tmp_path}", "-l:libcublas.so.13", "-lm"]
    assert nvcc.libraries(["-lcurand"]) == [f"-L{tmp_path}", "-lcurand"]
    assert nvcc.libraries(["-lcufft"]) == ["-lcufft"]


def test_ptxas_output():
    output = """\
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function '_Z1aPf' for 'sm_90'
ptxas info    : Function properties for _Z6helperf
    96 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _Z1aPf
    40 bytes stack frame, 16 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 8192 bytes smem
ptxas info    : Compile time = 5.000 ms
ptxas info    : Compiling entry function '_Z1bPf' for 'sm_80'
ptxas info    : Function properties for _Z1bPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, 368 bytes cmem[0]
"""
    assert ptxas_report(output) == (
        KernelResources("_Z1aPf", "sm_90", 255, 8192, 40, 16, 12),
        KernelResources("_Z1bPf", "sm_80", 10, 0, 0, 0, 0),
    )
    assert ptxas_report("device.cu(3): warning #177-D: x\n") == ()


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("std::vector<int> a; std::min(1, 2);", []),
        ("std::sort(a, b); std::unordered_map<int, int> m;", ["algorithm", "unordered_map"]),
        ("std::cout << 1;", None),
        ("using namespace std; vector<int> a;", None),
        ("std :: make_unique<int>(1)", ["memory"]),
    ],
)
def test_standard_headers_come_by_name(text: str, headers: list[str] | None):
    assert std_names.headers(text) == headers


STEPS = """\
#$ _SPACE_=
#$ CICC_PATH=/opt/my tools/nvvm/bin
#$ "/usr/bin"/g++ -D__CUDA_ARCH_LIST__=900 -E -x c++ "device.cu" -o "./device.cpp4.ii"
#$ cudafe++ --m64 --gen_module_id_file --module_id_file_name "./device.module_id" "./device.cpp4.ii"
#$ "/usr/bin"/g++ -D__CUDA_ARCH__=900 -E -x c++ "device.cu" -o "./device.cpp1.ii"
#$ "$CICC_PATH/cicc" --module_id_file_name "./device.module_id" "./device.cpp1.ii" -o "./device.ptx"
#$ ptxas -arch=sm_90 "./device.ptx" -o "./device.cubin"
#$ fatbinary -64 "--image3=kind=elf,sm=90,file=./device.cubin" --embedded-fatbin="./device.fatbin.c"
#$ rm ./device.fatbin
#$ "/usr/bin"/g++ -D__CUDA_ARCH__=900 -c -x c++ "./device.cudafe1.cpp" -o "device.o"
"""


def test_the_steps_of_nvcc_become_two_branches():
    script = nvcc_steps.script(STEPS, "0123abcd")
    assert script is not None
    lines = script.splitlines()
    branch = next(line for line in lines if line.endswith("&"))
    assert "cicc" in branch
    assert "cudafe++" not in branch
    assert "--gen_module_id_file" not in script  # both branches read the one that is written first
    assert "export CICC_PATH='/opt/my tools/nvvm/bin'" in lines
    assert lines[-1].startswith("exec ")
    assert subprocess.run(["/bin/sh", "-n"], input=script.encode(), check=False).returncode == 0


@pytest.mark.parametrize(
    "dry_run",
    [
        "",
        "nvcc fatal   : Unknown option\n",
        STEPS.replace("ptxas", "nvlink"),
        STEPS + STEPS,  # two architectures
        STEPS.replace("--gen_module_id_file", ""),
    ],
)
def test_steps_that_look_otherwise_stay_with_nvcc(dry_run: str):
    assert nvcc_steps.script(dry_run, "0123abcd") is None


def test_a_failing_branch_fails_the_script(tmp_path: Path):
    """The front end's messages alone are shown where both branches fail on the same source."""
    steps = STEPS
    for name in ('"/usr/bin"/g++', "cudafe++", '"$CICC_PATH/cicc"', "ptxas", "fatbinary"):
        steps = steps.replace(f"#$ {name}", f"#$ ./{name.rpartition('/')[2].strip(chr(34))}")
    for name, status in (("g++", 0), ("cudafe++", 2), ("cicc", 1), ("ptxas", 0), ("fatbinary", 0)):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\necho {name} says so\nexit {status}\n")
        tool.chmod(0o755)
    script = nvcc_steps.script(steps, "0123abcd")
    assert script is not None
    done = subprocess.run(["/bin/sh"], input=script, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "cudafe++ says so" in done.stdout
    assert "cicc says so" not in done.stdout


@pytest.mark.asyncio(loop_scope="session")
async def test_a_lean_unit_and_a_whole_one(tmp_path: Path, worker_info: WorkerInfo):
    include = torch_include(worker_info)

    def unit(text: str) -> str:
        folder = tmp_path / uuid.uuid4().hex
        folder.mkdir()
        device.write_unit(BuildRequest("x", (SourceText("cuda", text),)), folder, include)
        return (folder / device.UNIT).read_text()

    assert "MC_DEVICE_UNIT" in unit("__global__ void k(float* x) { *x = std::max(*x, 1.f); }")
    assert "MC_DEVICE_UNIT" not in unit('void f() { std::cout << "x"; }')
    assert "MC_DEVICE_UNIT" not in unit("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}")
    assert "MC_TOOLKIT_HALF" in unit("__half* p;")
    assert "MC_TOOLKIT_HALF" not in unit("float* p;")
    assert "<cuda.h>" in unit("CUdeviceptr p;")
    assert "<cuda.h>" not in unit("cudaStream_t s;")
