"""Twenty kinds of misbehaviour that a Candidate can show, and an honest one; for `bench faults`.

All share one extension for each backend, so that it is compiled once. `forward` bodies have `x`,
the extension `ext`, `torch`, `os` and `sys`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(64, 257)]
def get_init_inputs():
    return []
"""
_CPU = r"""
#include <torch/extension.h>
#include <cstdlib>
torch::Tensor honest(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.f ? in[i] : 0.f;
  return y;
}
torch::Tensor bad_address(torch::Tensor x) {
  volatile float* nowhere = nullptr;
  nowhere[0] = 1.f;
  return x;
}
torch::Tensor endless(torch::Tensor x) {
  volatile bool on = true;
  while (on) {
  }
  return x;
}
torch::Tensor too_large(torch::Tensor x) { return torch::empty({int64_t(1) << 46}, x.options()); }
torch::Tensor ends(torch::Tensor x) { std::abort(); return x; }
torch::Tensor refuses(torch::Tensor x) { TORCH_CHECK(false, "not today"); return x; }
"""
_CUDA = r"""
#include <torch/extension.h>
#include <cstdlib>
__global__ void rectify(const float* in, float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] > 0.f ? in[i] : 0.f;
}
__global__ void write_nowhere() { *reinterpret_cast<volatile float*>(8) = 1.f; }
__global__ void spin(volatile float* flag) { while (flag[0] == flag[0]) {} }
torch::Tensor honest(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int64_t n = x.numel();
  rectify<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
torch::Tensor bad_address(torch::Tensor x) {
  write_nowhere<<<1, 1>>>();
  return torch::empty_like(x);
}
torch::Tensor endless(torch::Tensor x) {
  auto y = torch::zeros({1}, x.options());
  spin<<<1, 1>>>(y.data_ptr<float>());
  return torch::empty_like(x);
}
torch::Tensor too_large(torch::Tensor x) { return torch::empty({int64_t(1) << 46}, x.options()); }
torch::Tensor ends(torch::Tensor x) { std::abort(); return x; }
torch::Tensor refuses(torch::Tensor x) { TORCH_CHECK(false, "not today"); return x; }
"""
_FUNCTIONS = ("honest", "bad_address", "endless", "too_large", "ends", "refuses")

KINDS: Mapping[str, str] = {
    "illegal address": "return ext.bad_address(x)",
    "endless native loop": "return ext.endless(x)",
    "endless Python loop": "while True: pass",
    "more memory than there is": "return ext.too_large(x)",
    "abort": "ext.ends(x)",
    "native exception": "return ext.refuses(x)",
    "exit with status 0": "os._exit(0)",
    "SystemExit": "sys.exit(0)",
    "kills its parent": "os.kill(os.getppid(), 9)",
    "kills its process group": "os.killpg(0, 9)",
    "stops itself": "os.kill(os.getpid(), 19)",
    "fork bomb": "while True: os.fork()",
    "endless recursion": "return self.forward(x)",
    "closes its descriptors": "os.closerange(0, 4096); return ext.honest(x)",
    "floods its output": "[os.write(fd, bytes(64 << 20)) for fd in (1, 2)]; raise KeyError",
    "fills the disk": "open('filler', 'wb').write(bytes(1 << 34))",
    "opens a socket": "import socket; socket.create_connection(('127.0.0.1', 9)); return x",
    "forges messages": "[os.write(fd, b'\\0' * 64) for fd in range(3, 32)]; return ext.honest(x)",
    "replaces torch's functions": (
        "torch.relu = torch.equal = torch.allclose = lambda *a, **k: True; return ext.honest(x)"
    ),
    "wrong result": "return ext.honest(x) + 1",
}
HONEST = "return ext.honest(x)"


def candidate(body: str, backend: str) -> str:
    """A Candidate whose `forward` has this body."""
    family = backend.partition(":")[0]
    declared = "".join(f"torch::Tensor {name}(torch::Tensor x);\n" for name in _FUNCTIONS)
    declared = f"#include <torch/extension.h>\n{declared}"
    sources = (
        f"cpp_sources={_CPU!r}"
        if family == "cpu"
        else f"cpp_sources={declared!r}, cuda_sources={_CUDA!r}"
    )
    return "\n".join(
        [
            "import os, sys",
            "import torch",
            "from torch.utils.cpp_extension import load_inline",
            f'ext = load_inline(name="faults", {sources}, functions={list(_FUNCTIONS)!r})',
            "class ModelNew(torch.nn.Module):",
            "    def forward(self, x):",
            textwrap.indent(body, "        "),
            "",
        ]
    )
