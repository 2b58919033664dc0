"""C++ that generated sources need, piece by piece; a source gets only the pieces that it names."""

from __future__ import annotations

import re

_PIECES: dict[str, tuple[str, tuple[str, ...]]] = {}


def _piece(name: str, source: str, *needs: str) -> None:
    _PIECES[name] = (source.strip("\n"), needs)


_piece(
    "larger",
    """
// The larger value; NaN comes through.
template <typename T>
static inline T larger(T a, T b) {
  return (a > b || a != a) ? a : b;
}
""",
)
_piece(
    "smaller",
    """
// The smaller value; NaN comes through.
template <typename T>
static inline T smaller(T a, T b) {
  return (a < b || a != a) ? a : b;
}
""",
)
_piece(
    "sign",
    """
template <typename T>
static inline T sign(T x) {
  return static_cast<T>((x > 0) - (x < 0));
}
""",
)
_piece(
    "inside",
    """
static inline bool inside(int64_t i, int64_t size) {
  return static_cast<uint64_t>(i) < static_cast<uint64_t>(size);
}
""",
)
_piece(
    "checked_index",
    """
// A wrong index is noted in `bad` and read as 0; the caller raises after the loop.
static inline int64_t checked_index(int64_t i, int64_t size, int& bad) {
  const bool wrong = static_cast<uint64_t>(i) >= static_cast<uint64_t>(size);
  bad |= wrong;
  return wrong ? 0 : i;
}
""",
)
_piece(
    "floor_divide",
    """
// Quotient rounded down, as Python has it.
template <typename T>
static inline T floor_divide(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::floor(a / b);
  } else {
    const T q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
  }
}
""",
)
_piece(
    "floor_remainder",
    """
// Remainder with the sign of the divisor, as Python has it.
template <typename T>
static inline T floor_remainder(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T r = std::fmod(a, b);
    return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
  } else {
    const T r = a % b;
    return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
  }
}
""",
)
_piece(
    "exponential",
    """
// exp without branches, so that loops over it vectorise. Cody-Waite reduction to |r| <= ln(2) / 2
// and the polynomial of Cephes expf (S. Moshier). The scale 2^n is applied in two halves, so that
// overflow gives inf and underflow is gradual.
static inline float exponential(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  const float shifted = c * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const int32_t exponent = bits - 0x4B400000;
  float r = c - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t half = exponent >> 1;
  const int32_t low_bits = (half + 127) << 23;
  const int32_t high_bits = (exponent - half + 127) << 23;
  float low, high;
  std::memcpy(&low, &low_bits, sizeof low);
  std::memcpy(&high, &high_bits, sizeof high);
  return p * low * high;
}
static inline double exponential(double x) { return std::exp(x); }
""",
)
_piece(
    "exponential_minus_1",
    """
// exp(x) - 1; near 0 by its Taylor series, where the difference would cancel.
static inline float exponential_minus_1(float x) {
  float p = 2.4801587e-5f;
  p = p * x + 1.9841270e-4f;
  p = p * x + 1.3888889e-3f;
  p = p * x + 8.3333333e-3f;
  p = p * x + 4.1666667e-2f;
  p = p * x + 1.6666667e-1f;
  p = p * x + 0.5f;
  const float series = x * x * p + x;
  const float difference = exponential(x) - 1.0f;
  return std::abs(x) < 0.4f ? series : difference;
}
static inline double exponential_minus_1(double x) { return std::expm1(x); }
""",
    "exponential",
)
_piece(
    "logarithm",
    """
// Natural logarithm without branches: mantissa in [sqrt(1/2), sqrt(2)) and the polynomial of
// Cephes logf (S. Moshier); exact at 0, inf, subnormal and negative arguments.
static inline float logarithm(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  int32_t bits;
  std::memcpy(&bits, &scaled, sizeof bits);
  int32_t exponent = ((bits >> 23) & 255) - (tiny ? 149 : 126);
  const int32_t mantissa_bits = (bits & 0x007FFFFF) | 0x3F000000;
  float m;
  std::memcpy(&m, &mantissa_bits, sizeof m);
  const bool low = m < 0.707106781186547524f;
  exponent -= low ? 1 : 0;
  m = (low ? m + m : m) - 1.0f;
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float n = static_cast<float>(exponent);
  float y = p * m * z;
  y = y + n * -2.12194440e-4f;
  y = y - 0.5f * z;
  float result = m + y + n * 0.693359375f;
  result = x == std::numeric_limits<float>::infinity() ? x : result;
  result = x == 0.0f ? -std::numeric_limits<float>::infinity() : result;
  result = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : result;
  return x != x ? x : result;
}
static inline double logarithm(double x) { return std::log(x); }
""",
)
_piece(
    "logarithm_1_plus",
    """
// log(1 + x); the rounding of 1 + x is put right to first order (W. Kahan). No bool is kept: GCC 12
// does not vectorise a selection between two of them.
static inline float logarithm_1_plus(float x) {
  const float u = 1.0f + x;
  const float rounding = (u - 1.0f) - x;
  const float kept = rounding == rounding ? rounding : 0.0f;
  return logarithm(u) - kept / (u == 0.0f ? 1.0f : u);
}
static inline double logarithm_1_plus(double x) { return std::log1p(x); }
""",
    "logarithm",
)
_piece(
    "sigmoid",
    """
static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
static inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
""",
    "exponential",
)
_piece(
    "hyperbolic_tangent",
    """
// tanh: the polynomial of Cephes tanhf (S. Moshier) near 0, 1 - 2 / (exp(2|x|) + 1) elsewhere.
static inline float hyperbolic_tangent(float x) {
  const float a = std::abs(x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  const float far = 1.0f - 2.0f / (exponential(a + a) + 1.0f);
  return a < 0.625f ? near : std::copysign(far, x);
}
static inline double hyperbolic_tangent(double x) { return std::tanh(x); }
""",
    "exponential",
)
_piece(
    "error_function",
    """
// erf by two minimax polynomials (N. Juffa, public domain): odd in x near 0, and the exponent of
// 1 - exp(..) elsewhere; about 1 ulp.
static inline float error_function(float x) {
  const float a = std::abs(x);
  const float t = a > 4.0f ? 4.0f : a;
  const float s = t * t;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  far = far * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  far = std::copysign(1.0f - exponential(far), x);
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  return a > 0.927734375f ? far : near;
}
static inline double error_function(double x) { return std::erf(x); }
""",
    "exponential",
)
_piece(
    "gelu",
    """
template <typename T>
static inline T gelu(T x) {
  return T(0.5) * x * (T(1) + error_function(x * T(0.70710678118654752440)));
}
""",
    "error_function",
)
_piece(
    "gelu_tanh",
    """
template <typename T>
static inline T gelu_tanh(T x) {
  const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + hyperbolic_tangent(inner));
}
""",
    "hyperbolic_tangent",
)


def pieces_for(code: str) -> str:
    """The pieces that `code` names, and what they need, in order."""
    words = set(re.findall(r"\b([a-z_0-9]+)(?:<[a-z_0-9]+>)?\(", code))
    wanted = {name for name in _PIECES if name in words}
    pending = list(wanted)
    while pending:
        for need in _PIECES[pending.pop()][1]:
            if need not in wanted:
                wanted.add(need)
                pending.append(need)
    return "\n\n".join(source for name, (source, _) in _PIECES.items() if name in wanted)


def register(name: str, source: str, *needs: str) -> None:
    _piece(name, source, *needs)
