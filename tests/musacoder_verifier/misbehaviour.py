"""Candidates that misbehave, each in a way of its own, on the CPU and on a CUDA device.

All of one backend share one source, so that it is compiled once.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

_CPU_SOURCE = """
#include <torch/extension.h>
#include <cstdlib>

torch::Tensor rectify(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t n = x.numel();
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.f ? in[i] : 0.f;
  return y;
}

torch::Tensor partial(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    if (in[i] > 0.f) out[i] = in[i];
  return y;
}

torch::Tensor zeros(torch::Tensor x) {
  auto y = torch::empty_like(x);
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = 0.f;
  return y;
}

torch::Tensor illegal(torch::Tensor x) {
  volatile float* nowhere = nullptr;
  nowhere[0] = 1.f;
  return x;
}

torch::Tensor trap(torch::Tensor x) {
  std::abort();
  return x;
}

torch::Tensor spin(torch::Tensor x) {
  volatile int64_t turns = 0;
  while (turns >= 0) turns = turns > 100 ? 0 : turns + 1;
  return x;
}

static int64_t deeper(volatile int64_t* above, int64_t level) {
  volatile int64_t here[512];
  here[level % 512] = above ? above[0] : level;
  return level < 0 ? here[0] : deeper(here, level + 1) + here[1];
}

torch::Tensor unlaunchable(torch::Tensor x) {
  deeper(nullptr, 0);
  return x;
}

torch::Tensor greedy(torch::Tensor x) {
  return torch::empty({int64_t(1) << 44}, x.options());
}

torch::Tensor refuse(torch::Tensor x) {
  TORCH_CHECK(false, "not today");
  return x;
}
"""

_CUDA_SOURCE = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime.h>

__global__ void rectify_kernel(const float* in, float* out, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] > 0.f ? in[i] : 0.f;
}
__global__ void partial_kernel(const float* in, float* out, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n && in[i] > 0.f) out[i] = in[i];
}
__global__ void illegal_kernel(float* out) {
  out[(int64_t(1) << 42) + threadIdx.x] = 1.f;
}
__global__ void trap_kernel() { __trap(); }
__global__ void spin_kernel(volatile int* flag) {
  while (flag[0] != 12345) {
  }
}

static int blocks(int64_t n) { return int((n + 255) / 256); }

torch::Tensor rectify(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  TORCH_CHECK(x.scalar_type() == torch::kFloat, "x must be float32");
  auto y = torch::empty_like(x);
  int64_t n = x.numel();
  rectify_kernel<<<blocks(n), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}

torch::Tensor partial(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int64_t n = x.numel();
  partial_kernel<<<blocks(n), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}

torch::Tensor zeros(torch::Tensor x) {
  auto y = torch::empty_like(x);
  cudaMemsetAsync(y.data_ptr<float>(), 0, x.numel() * 4, at::cuda::getCurrentCUDAStream());
  return y;
}

torch::Tensor illegal(torch::Tensor x) {
  auto y = torch::empty_like(x);
  illegal_kernel<<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>());
  return y;
}

torch::Tensor trap(torch::Tensor x) {
  trap_kernel<<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>();
  return torch::empty_like(x);
}

torch::Tensor spin(torch::Tensor x) {
  auto flag = torch::empty({1}, x.options().dtype(torch::kInt));
  cudaMemsetAsync(flag.data_ptr<int>(), 0, 4, at::cuda::getCurrentCUDAStream());
  spin_kernel<<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>(flag.data_ptr<int>());
  return torch::empty_like(x);
}

torch::Tensor unlaunchable(torch::Tensor x) {
  auto y = torch::empty_like(x);
  rectify_kernel<<<1, 4096, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}

torch::Tensor greedy(torch::Tensor x) {
  return torch::empty({int64_t(1) << 44}, x.options());
}

torch::Tensor refuse(torch::Tensor x) {
  TORCH_CHECK(false, "not today");
  return x;
}

// On a queue that the current one does not wait for, and that nobody waits for here.
torch::Tensor elsewhere(torch::Tensor x) {
  static cudaStream_t other = nullptr;
  if (other == nullptr) cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  auto y = torch::empty_like(x);
  int64_t n = x.numel();
  for (int i = 0; i < 20; ++i)
    rectify_kernel<<<blocks(n), 256, 0, other>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""

_FUNCTIONS = (
    "rectify", "partial", "zeros", "illegal", "trap", "spin", "unlaunchable", "greedy", "refuse",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """`forward` is the body of ModelNew.forward; `statuses` are those that a Verdict may have."""

    name: str
    forward: str
    statuses: frozenset[str] = field(default_factory=lambda: frozenset({"runtime_error"}))
    hangs: bool = False


def _fault(name: str, forward: str, *statuses: str, hangs: bool = False) -> Fault:
    return Fault(name, forward, frozenset(statuses or ("runtime_error",)), hangs)


# The same names on every backend; what the extension's functions do is the backend's own.
FAULTS = (
    _fault("raises", "raise ValueError('no')"),
    _fault("exits well", "import os; os._exit(0)"),
    _fault("exits badly", "import os; os._exit(3)"),
    _fault("calls sys.exit", "import sys; sys.exit(0)"),
    _fault("kills itself", "import os; os.kill(os.getpid(), 9)"),
    _fault("illegal access", "return ext.illegal(x)", "runtime_error", "illegal"),
    _fault("traps", "return ext.trap(x)", "runtime_error"),
    _fault("spins in Python", "while True: pass", "timeout", hangs=True),
    _fault("spins in a kernel", "return ext.spin(x)", "timeout", hangs=True),
    _fault("cannot be launched", "return ext.unlaunchable(x)", "runtime_error", "wrong_result"),
    _fault("wants all memory", "return ext.greedy(x)"),
    _fault("refuses", "return ext.refuse(x)"),
    _fault("returns nothing", "ext.rectify(x)", "wrong_result"),
    _fault("another shape", "return ext.rectify(x)[:1]", "wrong_result"),
    _fault("leaves gaps", "return ext.partial(x)", "wrong_result"),
    _fault("returns zeros", "return ext.zeros(x)", "wrong_result"),
    _fault("starts processes", "import os\nwhile True: os.fork()"),
    _fault("closes everything", "import os; os.closerange(3, 4096)\nreturn ext.rectify(x)"),
    _fault(
        "writes into its pipes",
        """
        import os, stat
        for name in os.listdir('/proc/self/fd'):
            try:
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode): os.write(int(name), b'junk\\n' * 9)
            except OSError:
                pass
        return ext.rectify(x)
        """,
        "runtime_error", "wrong_result", "illegal",
    ),
    _fault(
        "leaves a thread at work",
        """
        import threading
        def work():
            while True: sum(range(1000))
        threading.Thread(target=work, daemon=True).start()
        return ext.rectify(x)
        """,
        "illegal",
    ),
)  # fmt: skip


def candidate(backend: str, forward: str) -> str:
    """A module whose ModelNew.forward has this body."""
    cuda = backend.startswith("cuda")
    functions = [*_FUNCTIONS, "elsewhere"] if cuda else list(_FUNCTIONS)
    declared = "\n".join(f"torch::Tensor {name}(torch::Tensor x);" for name in functions)
    sources = f"cpp_sources={declared!r}, cuda_sources=SOURCE" if cuda else "cpp_sources=SOURCE"
    return "\n".join(
        [
            "import torch",
            "from torch.utils.cpp_extension import load_inline",
            f'SOURCE = r"""{_CUDA_SOURCE if cuda else _CPU_SOURCE}"""',
            f'ext = load_inline(name="misbehaviour", {sources}, functions={functions!r})',
            "class ModelNew(torch.nn.Module):",
            "    def forward(self, x):",
            textwrap.indent(textwrap.dedent(forward).strip(), "        "),
            "",
        ]
    )


def honest(backend: str) -> str:
    return candidate(backend, "return ext.rectify(x)")


def reference(shape: str) -> str:
    return textwrap.dedent(f"""\
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                return torch.relu(x)
        def get_inputs():
            return [torch.randn({shape})]
        def get_init_inputs():
            return []
        """)
