"""What CUDA and MUSA sources differ in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """`argument` is the name under which `load_inline` takes the source, `loader` the statement
    that imports it, `options` further arguments of the call."""

    name: str
    includes: tuple[str, ...]
    stream: str
    launch_check: str
    device: str
    argument: str
    loader: str
    options: str


CUDA = Dialect(
    name="CUDA",
    includes=("<torch/extension.h>", "<ATen/cuda/CUDAContext.h>", "<c10/cuda/CUDAException.h>"),
    stream="at::cuda::getCurrentCUDAStream()",
    launch_check="C10_CUDA_KERNEL_LAUNCH_CHECK();",
    device="cuda",
    argument="cuda_sources",
    loader="from torch.utils.cpp_extension import load_inline",
    options="",
)
MUSA = Dialect(
    name="MUSA",
    includes=(
        "<torch/extension.h>",
        "<musa_runtime.h>",
        '"torch_musa/csrc/aten/musa/MUSAContext.h"',
    ),
    stream="at::musa::getCurrentMUSAStream()",
    launch_check='TORCH_CHECK(musaGetLastError() == musaSuccess, "a kernel did not start");',
    device="musa",
    argument="musa_sources",
    loader="from torch_musa.utils.musa_extension import load_inline",
    # torch_musa names no architecture by itself.
    options=(
        '    extra_musa_cflags=["--offload-arch=mp_%d%d" % torch.musa.get_device_capability()],\n'
    ),
)
