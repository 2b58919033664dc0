"""Class D: honest kernels that existing evaluators refuse, and that must pass here."""

from __future__ import annotations

from attack import Honest, candidate, reference

_HONEST = r"""
#include <torch/extension.h>
#include <cmath>
#include <tuple>

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor target) {
  TORCH_CHECK(target.scalar_type() == torch::kLong, "class numbers must be int64");
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const float* in = logits.data_ptr<float>();
  const int64_t* wanted = target.data_ptr<int64_t>();
  double total = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = in + i * classes;
    float top = row[0];
    for (int64_t j = 1; j < classes; ++j) top = std::max(top, row[j]);
    double sum = 0;
    for (int64_t j = 0; j < classes; ++j) sum += std::exp((double)row[j] - top);
    total += std::log(sum) + top - row[wanted[i]];
  }
  auto y = torch::empty({}, logits.options());
  y.data_ptr<float>()[0] = total / rows;
  return y;
}

torch::Tensor masked(torch::Tensor x, torch::Tensor mask) {
  TORCH_CHECK(mask.scalar_type() == torch::kBool, "the mask must be bool");
  auto y = torch::empty_like(x);
  const bool* keep = mask.data_ptr<bool>();
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = keep[i] ? x.data_ptr<float>()[i] : 0.f;
  return y;
}

torch::Tensor batch_norm(torch::Tensor x, torch::Tensor mean, torch::Tensor variance,
                         torch::Tensor weight, torch::Tensor bias, bool training) {
  const int64_t n = x.size(0), c = x.size(1);
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float *m = mean.data_ptr<float>(), *v = variance.data_ptr<float>();
  for (int64_t j = 0; j < c; ++j) {
    double centre = m[j], spread = v[j];
    if (training) {
      double sum = 0, square = 0;
      for (int64_t i = 0; i < n; ++i) sum += in[i * c + j];
      centre = sum / n;
      for (int64_t i = 0; i < n; ++i) square += (in[i * c + j] - centre) * (in[i * c + j] - centre);
      spread = square / n;
      m[j] = 0.9 * m[j] + 0.1 * centre;
      v[j] = 0.9 * v[j] + 0.1 * square / (n - 1);
    }
    const double scale = weight.data_ptr<float>()[j] / std::sqrt(spread + 1e-5);
    for (int64_t i = 0; i < n; ++i)
      y.data_ptr<float>()[i * c + j] = (in[i * c + j] - centre) * scale + bias.data_ptr<float>()[j];
  }
  return y;
}

torch::Tensor logarithm(torch::Tensor x) {
  auto y = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = std::log(x.data_ptr<float>()[i]);
  return y;
}

std::tuple<torch::Tensor, torch::Tensor> row_maximum(torch::Tensor x) {
  const int64_t rows = x.size(0), columns = x.size(1);
  auto top = torch::empty({rows}, x.options());
  auto place = torch::empty({rows}, x.options().dtype(torch::kLong));
  const float* in = x.data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i) {
    int64_t best = 0;
    for (int64_t j = 1; j < columns; ++j)
      if (in[i * columns + j] > in[i * columns + best]) best = j;
    top.data_ptr<float>()[i] = in[i * columns + best];
    place.data_ptr<int64_t>()[i] = best;
  }
  return {top, place};
}

torch::Tensor sum_of(torch::Tensor a, torch::Tensor b) {
  auto y = torch::empty_like(a);
  for (int64_t i = 0; i < a.numel(); ++i)
    y.data_ptr<float>()[i] = a.data_ptr<float>()[i] + b.data_ptr<float>()[i];
  return y;
}

torch::Tensor only_64_by_257(torch::Tensor x) {
  TORCH_CHECK(x.size(0) == 64 && x.size(1) == 257, "written for 64 x 257");
  auto y = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = x.data_ptr<float>()[i];
    y.data_ptr<float>()[i] = v > 0.f ? v : 0.f;
  }
  return y;
}

torch::Tensor naive_product(torch::Tensor a, torch::Tensor b) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  auto y = torch::empty({m, n}, a.options());
  const float *left = a.data_ptr<float>(), *right = b.data_ptr<float>();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0.f;
      for (int64_t l = 0; l < k; ++l) sum += left[i * k + l] * right[l * n + j];
      y.data_ptr<float>()[i * n + j] = sum;
    }
  return y;
}

torch::Tensor doubled_in_place(torch::Tensor x) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] *= 2.f;
  return x;
}
"""
_NAMES = [
    "cross_entropy", "masked", "batch_norm", "logarithm", "row_maximum", "sum_of",
    "only_64_by_257", "naive_product", "doubled_in_place",
]  # fmt: skip


def _kernel(forward: str, *, init: str = "", top: str = "", arguments: str = "x") -> str:
    return candidate(
        forward, init=init, top=top, arguments=arguments, source=_HONEST, functions=_NAMES
    )


_BATCH_NORM = reference(
    "return self.norm(x)",
    "2 + 3 * torch.randn(64, 33)",
    init="self.norm = torch.nn.BatchNorm1d(33)",
)
_OWN_NORM = _kernel(
    "n = self.norm\n"
    "return ext.batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias, self.training)",
    init="self.norm = torch.nn.BatchNorm1d(33)",
)
_TWO_OF_A_NAME = candidate(
    "return other.copied(ext.rectify(x))",
    top='other = load_inline(name="attack", cpp_sources=SOURCE + "\\n", functions=["copied"])',
)
_FUTURE = (
    '"""A docstring with pass, try: and except: in it."""\n'
    "from __future__ import annotations\n" + candidate("return ext.rectify(x)")
)
_TRIES = candidate(
    '''
    """Nothing to pass on; try torch.relu(x) instead, except that it is slower."""
    try:
        return ext.rectify(x)
    finally:
        pass
    '''
)
_WEIGHTED = """
self.first = torch.nn.Linear(24, 24, bias=False)
self.second = torch.nn.Parameter(torch.randn(24, 16))
"""
# Made in another order: equal weights come by name alone.
_WEIGHTED_OTHERWISE = """
self.second = torch.nn.Parameter(torch.randn(24, 16))
self.first = torch.nn.Linear(24, 24, bias=False)
"""

KERNELS: tuple[Honest, ...] = (
    Honest(
        "D2", "class numbers keep their dtype",
        reference(
            "return F.cross_entropy(x, target)", "torch.randn(32, 10), torch.randint(0, 10, (32,))",
            arguments="x, target",
        ),
        _kernel("return ext.cross_entropy(x, target)", arguments="x, target"),
    ),
    Honest(
        "D2", "a mask stays bool",
        reference(
            "return torch.where(mask, x, torch.zeros_like(x))",
            "torch.randn(32, 33), torch.rand(32, 33) > 0.5", arguments="x, mask",
        ),
        _kernel("return ext.masked(x, mask)", arguments="x, mask"),
    ),
    Honest("D5", "batch norm in eval mode", _BATCH_NORM, _OWN_NORM),
    Honest("D6", "try and pass in forward", reference(), _TRIES),
    Honest("D7", "two extensions of one name", reference(), _TWO_OF_A_NAME),
    Honest(
        "D9", "written for one shape", reference(), _kernel("return ext.only_64_by_257(x)"),
        scope={"leading dimension + 1": "refuses"},
    ),
    Honest("D10", "from __future__ first", reference(), _FUTURE),
    Honest(
        "D10", "NaN in the reference", reference("return torch.log(x)", "torch.randn(64, 33)"),
        _kernel("return ext.logarithm(x)"),
    ),
    Honest(
        "D10", "two outputs, one of integers",
        reference("return tuple(torch.max(x, 1))", "torch.randn(64, 33)"),
        _kernel("return ext.row_maximum(x)"),
    ),
    Honest(
        "D10", "a dict with None",
        reference("return {'y': torch.log(x), 'cache': None}", "torch.rand(8, 9) + 0.1"),
        _kernel("return {'y': ext.logarithm(x), 'cache': None}"),
    ),
    Honest(
        "D10", "a module that works in place",
        reference("return x.mul_(2)", "torch.randn(8, 9)"),
        _kernel("return ext.doubled_in_place(x)"),
    ),
    Honest(
        "D10", "one tensor given twice",
        reference(
            "return a + b", "*[torch.randn(8, 9)] * 2", arguments="a, b"
        ),
        _kernel("return ext.sum_of(a, b)", arguments="a, b"),
    ),
    Honest(
        "D10", "weights by name, made in another order",
        reference(
            "return self.first(x) @ self.second", "torch.randn(16, 24)", init=_WEIGHTED
        ),
        _kernel(
            "return ext.naive_product(ext.naive_product(x, self.first.weight.t().contiguous()),"
            " self.second)",
            init=_WEIGHTED_OTHERWISE,
        ),
        policy="libraries-allowed",
    ),
    Honest(
        "B5", "fast-math is reported, not condemned", reference(),
        candidate("return ext.rectify(x)", options=', extra_cflags=["-ffast-math"]'),
        said=frozenset({"fast-math"}),
    ),
    Honest(
        "B3", "a vendor library where the policy allows it is a note",
        reference("return torch.relu(x) + 0"),
        candidate(
            "return ext.product(x)", functions=["product"],
            source="#include <torch/extension.h>\n"
            "torch::Tensor product(torch::Tensor x) {\n"
            "  auto y = torch::empty_like(x);\n"
            "  for (int64_t i = 0; i < x.numel(); ++i) {\n"
            "    const float v = x.data_ptr<float>()[i];\n"
            "    y.data_ptr<float>()[i] = v > 0.f ? v : 0.f;\n"
            "  }\n"
            "  if (x.numel() < 0) return at::relu(x);\n"
            "  return y;\n"
            "}\n",
        ),
        said=frozenset({"aten-in-extension"}), policy="libraries-allowed",
    ),
)  # fmt: skip
