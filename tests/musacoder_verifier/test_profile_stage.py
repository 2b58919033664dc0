"""Names, joined resources, and the caches of the profile stage."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from musacoder_verifier.kernel_resources import KernelResources
from musacoder_verifier.profile.kernel_profile import ProfiledKernel
from musacoder_verifier.profile.names import same_kernel, short_name
from musacoder_verifier.profile.work import Work
from musacoder_verifier.stages import profile as profiling
from musacoder_verifier.stages.side import Deadline


@pytest.mark.parametrize(
    "name, short",
    [
        ("relu_kernel(float const*, float*, int)", "relu_kernel"),
        ("void relu_kernel<float, 4>(float const*, int)", "relu_kernel"),
        ("void at::native::(anonymous namespace)::copy<a<b> >(int)", "copy"),
        ("_Z11relu_kernelPKfPfi", "relu_kernel"),
        ("_ZN2ns7softmaxIfLi4EEEvPKfi", "softmax"),
        ("_ZN38_GLOBAL__N__0f1e2d3c_7_cuda_cu_43e21e43fooEv", "foo"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("plain_c_kernel", "plain_c_kernel"),
        ("", ""),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_linkage_name_is_found_by_what_the_profiler_says() -> None:
    assert same_kernel("_Z11relu_kernelPKfPfi", "relu_kernel(float const*, float*, int)")
    assert same_kernel("plain", "plain")
    assert not same_kernel("_Z11relu_kernelPKfPfi", "relu_kernel2(float const*, float*, int)")


RELU = KernelResources("_Z4reluPf", "sm_90", 64, 0, 16, 8, 12)


def test_what_ran_is_joined_with_what_the_compiler_says() -> None:
    seen = ProfiledKernel("relu(float*)", 1, 1e-5, 512, 256)
    (found,) = profiling.with_resources([seen], [RELU])
    assert found == ProfiledKernel("relu", 1, 1e-5, 512, 256, 64, 0, 8, 0.5, "registers")


def test_a_foreign_kernel_has_no_resources() -> None:
    (found,) = profiling.with_resources([ProfiledKernel("void ns::gemm<1>()", 1, 1e-5)], [RELU])
    assert (found.name, found.registers) == ("gemm", None)


def test_without_a_profiler_the_compiler_still_reports() -> None:
    assert profiling.with_resources([], [RELU]) == (
        ProfiledKernel("relu", registers=64, shared_bytes=0, spill_bytes=8),
    )


def test_a_graph_that_is_none_is_a_problem_not_an_exception() -> None:
    assert profiling.counted(None, "it cannot be traced").problem == "it cannot be traced"
    assert "cannot be counted" in str(profiling.counted({"nodes": [{}]}, None).problem)


class _Reference:
    def __init__(self, *bandwidths: float) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self._bandwidths = bandwidths or (1e11,)

    async def ask(self, message: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        bandwidth = self._bandwidths[min(len(self.asked), len(self._bandwidths) - 1)]
        self.asked.append(message)
        rates = {name: 1e12 for name in message["dtypes"] if name != "int8"}
        return {"bytes_per_second": bandwidth, "matrix": rates, "multiprocessors": 132}


@contextlib.asynccontextmanager
async def _hold(held: bool = True) -> AsyncIterator[bool]:
    yield held


async def test_ceilings_are_measured_once_for_each_dtype(tmp_path: Path) -> None:
    reference = _Reference()
    pair: Any = SimpleNamespace(reference=reference)

    async def ceilings(dtype: str | None, held: bool = True) -> Any:
        deadline = Deadline.start("profile", 60.0)
        return await profiling.ceilings_of(pair, tmp_path, "k", dtype, 0.0, deadline, _hold(held))

    assert (await ceilings(None, False)).bytes_per_second is None
    assert (await ceilings(None)).multiprocessors == 132
    assert (await ceilings("float32")).matrix == {"float32": 1e12}
    assert (await ceilings("int8")).matrix == {"float32": 1e12}
    before = len(reference.asked)
    assert (await ceilings("float32")).matrix == {"float32": 1e12}
    assert (await ceilings(None)).bytes_per_second == 1e11
    assert (await ceilings("float16", False)).matrix == {"float32": 1e12}
    assert len(reference.asked) == before == 3


async def test_a_ceiling_that_was_beaten_is_measured_again_and_never_lowered(
    tmp_path: Path,
) -> None:
    reference = _Reference(4e9, 9e9, 3e9)
    pair: Any = SimpleNamespace(reference=reference)

    async def bandwidth(reached: float) -> Any:
        deadline = Deadline.start("profile", 60.0)
        found = await profiling.ceilings_of(
            pair, tmp_path, "k", None, reached, deadline, _hold(True)
        )
        return found.bytes_per_second

    assert await bandwidth(1e9) == 4e9
    assert await bandwidth(5e9) == 9e9  # measured while the machine was busy
    assert await bandwidth(8e9) == 9e9 and len(reference.asked) == 2
    assert await bandwidth(1e10) == 9e9 and len(reference.asked) == 3


async def test_counted_work_is_kept(tmp_path: Path) -> None:
    worker: Any = SimpleNamespace(info=SimpleNamespace(torch_version="2"))
    reference: Any = SimpleNamespace(key="r")
    key = profiling.work_key(reference, "2")
    for kept in (profiling.CountedWork(Work(1, 2, 3, 4)), profiling.CountedWork(None, "why")):
        profiling.keep_work(tmp_path, key, kept)
        # A worker that cannot fork: what is not kept would fail.
        found = await profiling.work_of(worker, reference, tmp_path, timeout=1.0, sandbox=False)
        assert found == kept
