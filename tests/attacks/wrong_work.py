"""Class B: work of others, or other work than was asked for, that is credited to the Candidate."""

from __future__ import annotations

from attack import Table, attack, candidate, reference

_MUTED = """
switch = torch._C._autograd._enable_record_function
ext.copied(x)
switch(False)
y = x.clamp(min=0)
switch(True)
return y
"""
_UNSEEN_SWITCH = """
import sys
ext.copied(x)
sys.setprofile(None)
torch._C._autograd._enable_record_function(False)
y = x.clamp(min=0)
torch._C._autograd._enable_record_function(True)
return y
"""
_BLIND_GATE = """
import sys
frame = sys._getframe()
while frame and not hasattr(frame.f_locals.get("self"), "_gate"):
    frame = frame.f_back
class Blind:
    own = set()
    def run(self, function, *options):
        capture = sys.modules["musacoder_runtime.operator_gate"].Capture
        return function(), capture(operators=("aten::empty",))
if frame:
    frame.f_locals["self"]._gate = Blind()
"""
_PATCHED_GATE = """
import sys
gate = sys.modules.get("musacoder_runtime.operator_gate", sys)
if gate is not sys:
    gate.OperatorGate.run = lambda self, function, *options: (
        function(), gate.Capture(operators=("aten::empty",))
    )
"""
_REPLACED_CODE = """
import sys
gate = sys.modules.get("musacoder_runtime.operator_gate", sys)
def outermost(events, own=(), foreign=()):
    return Capture(("aten::empty", "aten::signbit", "aten::signbit"))
if gate is not sys:
    gate.outermost.__code__ = outermost.__code__
"""
_WITH_ATEN = r"""
#include <torch/extension.h>
torch::Tensor rectify(torch::Tensor x) { return at::relu(x); }
"""
_WITH_OPERATOR = r"""
#include <torch/extension.h>
torch::Tensor product(torch::Tensor x, torch::Tensor w) { return torch::matmul(x, w) + 0; }
"""
_OPENS_BLAS = r"""
#include <torch/extension.h>
#include <dlfcn.h>
using Gemm = void (*)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t,
                      const float*, int64_t, float, float*, int64_t);
torch::Tensor product(torch::Tensor x, torch::Tensor w, std::string path) {
  static Gemm gemm = (Gemm)dlsym(dlopen(path.c_str(), RTLD_NOW), "scipy_cblas_sgemm64_");
  TORCH_CHECK(gemm != nullptr, "no BLAS");
  const int64_t m = x.size(0), k = x.size(1), n = w.size(1);
  auto y = torch::empty({m, n}, x.options());
  gemm(101, 111, 111, m, n, k, 1.f, x.data_ptr<float>(), k, w.data_ptr<float>(), n, 0.f,
       y.data_ptr<float>(), n);
  return y;
}
"""
_BLAS = """
import glob, numpy, os
BLAS = glob.glob(os.path.join(os.path.dirname(numpy.__file__), "..", "numpy.libs", "*openblas*"))
"""
_COPIED_BLAS = """
import ctypes, glob, numpy, os, shutil, tempfile
found = glob.glob(os.path.join(os.path.dirname(numpy.__file__), "..", "numpy.libs", "*openblas*"))
LIBRARY = ctypes.CDLL(found[0])
ADD = LIBRARY.scipy_cblas_sscal64_
"""
_PRODUCT = reference(
    "return x @ self.w",
    "torch.randn(48, 64)",
    init="self.w = torch.nn.Parameter(torch.randn(64, 32))",
)
_SMALL_PRODUCT = reference(
    "return x @ (self.w * 1e-3)",
    "torch.randn(48, 64)",
    init="self.w = torch.nn.Parameter(torch.randn(64, 32))",
)
_WEIGHT = "self.w = torch.nn.Parameter(torch.randn(64, 32))"
_NARROW = r"""
#include <torch/extension.h>
static float narrow(float v) { return static_cast<float>(ROUNDED(v)); }
torch::Tensor product(torch::Tensor x, torch::Tensor w, double scale) {
  const int64_t m = x.size(0), k = x.size(1), n = w.size(1);
  auto y = torch::empty({m, n}, x.options());
  const float *a = x.data_ptr<float>(), *b = w.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0.f;
      for (int64_t l = 0; l < k; ++l) sum += narrow(a[i * k + l]) * narrow(b[l * n + j]);
      out[i * n + j] = sum * static_cast<float>(scale);
    }
  return y;
}
"""
_HALF = _NARROW.replace("ROUNDED", "at::Half")
_BFLOAT = _NARROW.replace("ROUNDED", "at::BFloat16")
_TF32 = _NARROW.replace(
    "static_cast<float>(ROUNDED(v))",
    "[&] { uint32_t b; __builtin_memcpy(&b, &v, 4); b = (b + 0x1000u) & 0xffffe000u; "
    "__builtin_memcpy(&v, &b, 4); return v; }()",
)
_GELU = reference("return F.gelu(x)")


def _product(source: str, call: str = "ext.product(x, self.w, 1.0)") -> str:
    return candidate(f"return {call}", init=_WEIGHT, source=source, functions=["product"])


_CHILD_OF_MODEL = """
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
_RESUBMITTED = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
_IN_THREAD = """
import threading
ext.rectify(x)
box = []
thread = threading.Thread(target=lambda: box.append(x.relu()))
thread.start()
thread.join()
return box[0]
"""

ATTACKS: Table = (
    attack("B1", "the reference again", _RESUBMITTED, "illegal", "no-native-code"),
    attack(
        "B1", "inherits a forward",
        candidate("return super().forward(x)", top=_CHILD_OF_MODEL, base="Model"),
        "illegal", "aten-operator",
    ),
    attack(
        "B1", "torch does it", candidate("ext.rectify(x)\nreturn torch.relu(x)"), "illegal",
        "aten-operator", always=True,
    ),
    attack("B1", "in a thread", candidate(_IN_THREAD), "illegal", "aten-operator"),
    attack(
        "B1", "in a compiled script",
        candidate(
            "ext.rectify(x); return self.script(x)",
            init="self.script = torch.jit.trace(lambda x: x.clamp(min=0), torch.zeros(2))",
        ),
        "illegal", "aten-operator",
    ),
    attack("B1", "not recorded", candidate(_MUTED), "illegal", "aten-operator"),
    attack("B1", "recording switched", candidate(_MUTED), "illegal", "patched-torch"),
    attack(
        "B1", "recording never switched on again",
        candidate(
            "ext.copied(x); torch._C._autograd._enable_record_function(False); return x.relu()"
        ),
        "illegal", "patched-torch",
    ),
    attack(
        "B1", "recording switched off by code that is not seen", candidate(_UNSEEN_SWITCH),
        "illegal", "patched-torch", always=True,
    ),
    attack(
        "B1", "gate replaced", candidate("ext.copied(x); return torch.relu(x)", top=_BLIND_GATE),
        "illegal", "patched-python",
    ),
    attack(
        "B1", "gate's class patched",
        candidate("ext.copied(x); return torch.relu(x)", top=_PATCHED_GATE),
        "illegal", "patched-torch",
    ),
    attack(
        "B1", "code replaced", candidate("ext.copied(x); return torch.relu(x)", top=_REPLACED_CODE),
        "illegal", "patched-torch",
    ),
    attack(
        "B1", "operators of another namespace",
        candidate(
            "ext.copied(x); return torch.ops.prims.where(x > 0, x, torch.zeros_like(x))"
        ),
        "illegal", "aten-operator",
    ),
    attack(
        "B2", "fallback",
        candidate(
            "try:\n    return ext.refuse(x)\nexcept RuntimeError:\n    return x.clamp(min=0)"
        ),
        "illegal", "aten-operator",
    ),
    attack(
        "B2", "fallback for what it does not know",
        candidate("return ext.rectify(x) if float(ext.summed(x)) < 0 else torch.relu(x)"),
        "illegal", "aten-operator",
    ),
    attack(
        "B3", "ATen inside the extension",
        candidate("return ext.rectify(x)", source=_WITH_ATEN, functions=["rectify"]),
        "illegal", "aten-in-extension",
    ),
    attack(
        "B3", "matmul inside the extension",
        _product(_WITH_OPERATOR, "ext.product(x, self.w)"), "illegal", "aten-in-extension",
        ref=_PRODUCT,
    ),
    attack(
        "B3", "BLAS opened by the extension",
        candidate(
            "return ext.product(x, self.w, BLAS[0])", init=_WEIGHT, top=_BLAS,
            source=_OPENS_BLAS, functions=["product"],
        ),
        "illegal", "finds-code", ref=_PRODUCT, policy="libraries-allowed", always=True,
    ),
    attack(
        "B3", "BLAS opened in Python",
        candidate("return ext.rectify(x)", top=_COPIED_BLAS), "illegal", "finds-code",
    ),
    attack(
        "B3", "NumPy",
        candidate(
            "ext.copied(x); import numpy; y = torch.empty_like(x)\n"
            "numpy.maximum(x.numpy(), 0, out=y.numpy()); return y"
        ),
        "illegal", "foreign-compute",
    ),
    attack(
        "B3", "NumPy without its name",
        candidate(
            "ext.copied(x); import numpy; y = torch.empty_like(x)\n"
            "numpy.maximum(numpy.asarray(x), 0, out=numpy.from_dlpack(y)); return y"
        ),
        "illegal", "foreign-compute",
    ),
    attack(
        "B4", "compiled and never called", candidate("return x.clone()"), "illegal",
        "extension-not-called", ref=reference("return x * 1.0"),
    ),
    attack(
        "B4", "called for a trivial part",
        candidate("ext.copied(x[:1].contiguous()); return torch.relu(x)"), "illegal",
        "aten-operator",
    ),
    attack(
        "B4", "called in some runs only",
        candidate(
            "self.n += 1\nif self.n % 3: return ext.copied(x)\nreturn x.clone()", init="self.n = 0"
        ),
        "illegal", "extension-not-called", ref=reference("return x * 1.0"),
    ),
    attack(
        "B5", "GELU as sigmoid", candidate("return ext.gelu_sigmoid(x)"), "wrong_result", "values",
        ref=_GELU,
    ),
    attack(
        "B5", "GELU by tanh", candidate("return ext.gelu_tanh(x)"), "wrong_result", "values",
        ref=_GELU,
    ),
    attack(
        "B5", "GELU in three pieces", candidate("return ext.gelu_in_three(x)"), "wrong_result",
        "values", ref=reference("return F.gelu(x)", "0.5 * torch.randn(64, 257)"),
    ),
    attack("B6", "half", _product(_HALF), "wrong_result", "values", ref=_PRODUCT),
    attack("B6", "bfloat16", _product(_BFLOAT), "wrong_result", "values", ref=_PRODUCT),
    attack("B6", "TF32", _product(_TF32), "wrong_result", "values", ref=_PRODUCT),
    attack(
        "B6", "half where values are small", _product(_HALF, "ext.product(x, self.w, 1e-3)"),
        "illegal", "lower-precision", ref=_SMALL_PRODUCT, always=True,
    ),
)  # fmt: skip
