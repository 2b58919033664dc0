"""Candidates written by hand, honest and not: one extension, many ways to use it.

All share one source, so that it is compiled once however many of them are verified.
"""

from __future__ import annotations

import textwrap

SOURCE = """
#include <torch/extension.h>

torch::Tensor rectify(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  TORCH_CHECK(x.scalar_type() == torch::kFloat, "x must be float32");
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t n = x.numel();
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.f ? in[i] : 0.f;
  return y;
}

torch::Tensor copied(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i];
  return y;
}

torch::Tensor zeros(torch::Tensor x) {
  auto y = torch::empty_like(x);
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = 0.f;
  return y;
}

torch::Tensor positive_only(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    if (in[i] > 0.f) out[i] = in[i];
  return y;
}

torch::Tensor in_place(torch::Tensor x) {
  float* in = x.data_ptr<float>();
  auto y = rectify(x);
  for (int64_t i = 0; i < x.numel(); ++i) in[i] = 0.f;
  return y;
}

torch::Tensor summed(torch::Tensor x) {
  auto y = torch::empty({}, x.options());
  const float* in = x.data_ptr<float>();
  double total = 0;
  for (int64_t i = 0; i < x.numel(); ++i) total += in[i] > 0.f ? in[i] : -in[i];
  y.data_ptr<float>()[0] = total;
  return y;
}

torch::Tensor crash(torch::Tensor x) {
  volatile float* nowhere = nullptr;
  nowhere[0] = 1.f;
  return x;
}

torch::Tensor refuse(torch::Tensor x) {
  TORCH_CHECK(false, "not today");
  return x;
}
"""
FUNCTIONS = (
    "rectify", "copied", "zeros", "positive_only", "in_place", "summed", "crash", "refuse",
)  # fmt: skip


def candidate(forward: str, *, init: str = "", top: str = "", source: str = SOURCE) -> str:
    """A module whose ModelNew has these bodies; `top` stands after the extension is loaded."""
    return "\n".join(
        [
            "import torch",
            "from torch.utils.cpp_extension import load_inline",
            f'SOURCE = r"""{source}"""',
            f'ext = load_inline(name="hand", cpp_sources=SOURCE, functions={list(FUNCTIONS)!r})',
            textwrap.dedent(top),
            "class ModelNew(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            textwrap.indent(textwrap.dedent(init), "        "),
            "    def forward(self, x):",
            textwrap.indent(textwrap.dedent(forward), "        "),
            "",
        ]
    )


HONEST = candidate("return ext.rectify(x)")


def reference(forward: str = "return torch.relu(x)", inputs: str = "torch.randn(64, 257)") -> str:
    return textwrap.dedent(f"""\
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                {forward}
        def get_inputs():
            return [{inputs}]
        def get_init_inputs():
            return []
        """)
