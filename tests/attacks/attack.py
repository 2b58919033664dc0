"""The form of an attack and of an honest kernel, and the native code that most of them share."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Literal

from musacoder_verifier.policy import condemns
from musacoder_verifier.verdict import Status, Verdict

# One source for all that only differ in Python, so that it is compiled once.
NATIVE = r"""
#include <torch/extension.h>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

static const float* in_of(const torch::Tensor& x) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat, "x must be dense float32");
  return x.data_ptr<float>();
}

template <typename F>
static torch::Tensor mapped(const torch::Tensor& x, F f) {
  const float* in = in_of(x);
  auto y = torch::empty_like(x);
  float* out = y.data_ptr<float>();
  const int64_t n = x.numel();
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
  return y;
}

torch::Tensor rectify(torch::Tensor x) {
  return mapped(x, [](float v) { return v > 0.f ? v : 0.f; });
}
torch::Tensor copied(torch::Tensor x) { return mapped(x, [](float v) { return v; }); }
torch::Tensor zeros(torch::Tensor x) { return mapped(x, [](float) { return 0.f; }); }
torch::Tensor not_a_number(torch::Tensor x) {
  return mapped(x, [](float) { return std::numeric_limits<float>::quiet_NaN(); });
}
torch::Tensor unwritten(torch::Tensor x) { return torch::empty_like(x); }
torch::Tensor positive_only(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = in_of(x);
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    if (in[i] > 0.f) out[i] = in[i];
  return y;
}
torch::Tensor reused_block(torch::Tensor x) {
  {
    auto freed = torch::empty_like(x);
  }
  return torch::empty_like(x);
}
torch::Tensor refused_quietly(torch::Tensor x) {
  auto y = torch::empty_like(x);
  try {
    TORCH_CHECK(x.numel() < 16, "too large for one block");
  } catch (const c10::Error&) {
  }
  return y;
}
torch::Tensor below_a_threshold(torch::Tensor x) {
  return mapped(x, [](float v) { return v > 4.5f ? 4.5f : v > 0.f ? v : 0.f; });
}
torch::Tensor in_place(torch::Tensor x) {
  float* in = const_cast<float*>(in_of(x));
  auto y = rectify(x);
  for (int64_t i = 0; i < x.numel(); ++i) in[i] = 0.f;
  return y;
}
torch::Tensor rectify_in_place(torch::Tensor x) {
  float* in = const_cast<float*>(in_of(x));
  for (int64_t i = 0; i < x.numel(); ++i) in[i] = in[i] > 0.f ? in[i] : 0.f;
  return x;
}
torch::Tensor summed(torch::Tensor x) {
  auto y = torch::empty({}, x.options());
  const float* in = in_of(x);
  double total = 0;
  for (int64_t i = 0; i < x.numel(); ++i) total += in[i] > 0.f ? in[i] : -in[i];
  y.data_ptr<float>()[0] = total;
  return y;
}
static const float* remembered = nullptr;
torch::Tensor from_old_pointer(torch::Tensor x) {
  const float* in = in_of(x);
  if (remembered == nullptr) remembered = in;
  auto y = torch::empty_like(x);
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = remembered[i] > 0.f ? remembered[i] : 0.f;
  return y;
}
torch::Tensor later(torch::Tensor x) {
  auto y = torch::empty_like(x);
  std::thread([x, y]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const float* in = in_of(x);
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.f ? in[i] : 0.f;
  }).detach();
  return y;
}
torch::Tensor in_background(torch::Tensor x) {
  static int calls = 0;
  if (++calls > 2) return rectify(x);
  std::thread([] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
    volatile double sink = 0;
    while (std::chrono::steady_clock::now() < end) sink = sink + 1.0;
  }).detach();
  return rectify(x);
}
torch::Tensor gelu_sigmoid(torch::Tensor x) {
  return mapped(x, [](float v) { return v / (1.f + std::exp(-1.702f * v)); });
}
torch::Tensor gelu_tanh(torch::Tensor x) {
  return mapped(x, [](float v) {
    return 0.5f * v * (1.f + std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
  });
}
torch::Tensor gelu_in_three(torch::Tensor x) {
  return mapped(x, [](float v) {
    if (v > 2.6f) return v;
    if (v < -2.6f) return 0.f;
    return 0.5f * v * (1.f + std::erf(v * 0.70710678f));
  });
}
torch::Tensor times_first(torch::Tensor x, torch::Tensor w) {
  const float* in = in_of(x);
  const float* weight = in_of(w);
  auto y = torch::empty_like(x);
  float* out = y.data_ptr<float>();
  const int64_t n = w.numel();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * weight[i % n];
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
FUNCTIONS = [
    line.split("(")[0].split()[-1]
    for line in NATIVE.splitlines()
    if line.startswith("torch::Tensor ")
]

Table = tuple["Attack", ...]


@dataclass(frozen=True)
class Attack:
    """One Candidate that must not pass, and what must be said about it.

    `rules`: one of them must be a finding that condemns, or the check of correctness that failed;
    empty where the Candidate dies or is refused before. `timed`: it only shows while it is timed.
    `known_gap`: docs/threat-model.md says that this is not seen; then the test proves that too.
    `always`: of every run of the tests, however many of its class there are.
    """

    klass: str  # A1 ... C7, the catalogue's class
    title: str
    reference: str
    candidate: str
    status: Status | tuple[Status, ...]
    rules: frozenset[str] = frozenset()
    backend: Literal["cpu", "cuda"] = "cpu"
    timed: bool = False
    training: bool = False
    policy: str = "native-only"
    known_gap: bool = False
    always: bool = False

    @property
    def name(self) -> str:
        return f"{self.klass} {self.title}"


@dataclass(frozen=True)
class Honest:
    """One Candidate that must not be refused; `said` are rules of findings that must be there."""

    klass: str
    title: str
    reference: str
    candidate: str
    backend: Literal["cpu", "cuda"] = "cpu"
    training: bool = False
    said: frozenset[str] = frozenset()
    scope: dict[str, str] = field(default_factory=dict)
    policy: str = "native-only"

    @property
    def name(self) -> str:
        return f"{self.klass} {self.title}"


def candidate(
    forward: str,
    *,
    init: str = "",
    top: str = "",
    before: str = "",
    source: str = NATIVE,
    functions: list[str] | None = None,
    arguments: str = "x",
    options: str = "",
    base: str = "torch.nn.Module",
) -> str:
    """A module whose ModelNew has these bodies; `top` stands after the extension is loaded,
    `before` before it."""
    names = FUNCTIONS if functions is None else functions
    return "\n".join(
        [
            "import torch",
            "from torch.utils.cpp_extension import load_inline",
            textwrap.dedent(before),
            f'SOURCE = r"""{source}"""',
            f'ext = load_inline(name="attack", cpp_sources=SOURCE, functions={names!r}{options})',
            textwrap.dedent(top),
            f"class ModelNew({base}):",
            "    def __init__(self):",
            "        super().__init__()",
            textwrap.indent(textwrap.dedent(init), "        "),
            f"    def forward(self, {arguments}):",
            textwrap.indent(textwrap.dedent(forward), "        "),
            "",
        ]
    )


def reference(
    forward: str = "return torch.relu(x)",
    inputs: str = "torch.randn(64, 257)",
    *,
    init: str = "pass",
    arguments: str = "x",
) -> str:
    return "\n".join(
        [
            "import torch",
            "import torch.nn.functional as F",
            "class Model(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            textwrap.indent(textwrap.dedent(init), "        "),
            f"    def forward(self, {arguments}):",
            textwrap.indent(textwrap.dedent(forward), "        "),
            "def get_inputs():",
            f"    return [{inputs}]",
            "def get_init_inputs():",
            "    return []",
            "",
        ]
    )


RELU = reference()


def attack(
    klass: str,
    title: str,
    source: str,
    status: Status | tuple[Status, ...],
    *rules: str,
    ref: str = RELU,
    **others: object,
) -> Attack:
    return Attack(klass, title, ref, source, status, frozenset(rules), **others)  # type: ignore[arg-type]


def reasons(verdict: Verdict) -> set[str]:
    """The rules of findings that condemn, the check of correctness that failed, and `run` where the
    Candidate did not get that far."""
    legality, correctness = verdict.legality, verdict.correctness
    named = (
        {f.rule for f in legality.findings if condemns(verdict.policy, f)} if legality else set()
    )
    if correctness is not None and correctness.failed_check is not None:
        named.add(correctness.failed_check)
    if verdict.status == "runtime_error":
        named.add("run")
    return named
