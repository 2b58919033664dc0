// The two 16-bit floating types: stored bits, arithmetic in float, rounding to nearest even.
#pragma once

#include <c10/util/Exception.h>

#ifdef MC_TOOLKIT_HALF
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace musacoder {

template <class To, class From>
C10_HOST_DEVICE inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

C10_HOST_DEVICE inline float half_to_float(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#elif defined(__FLT16_MANT_DIG__) && !defined(__CUDACC__)
  return static_cast<float>(bits_as<_Float16>(bits));
#else
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) {
    return bits_as<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return bits_as<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
#endif
}

C10_HOST_DEVICE inline uint16_t float_to_half(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#elif defined(__FLT16_MANT_DIG__) && !defined(__CUDACC__)
  return bits_as<uint16_t>(static_cast<_Float16>(value));
#else
  // Rounds by adding a power of two whose ulp is the target's: the FP16 library's method.
  const float scaled = (__builtin_fabsf(value) * 0x1.0p+112f) * 0x1.0p-110f;
  const uint32_t w = bits_as<uint32_t>(value);
  const uint32_t shifted = w + w;
  uint32_t bias = shifted & 0xff000000u;
  if (bias < 0x71000000u) {
    bias = 0x71000000u;
  }
  const float base = bits_as<float>((bias >> 1) + 0x07800000u) + scaled;
  const uint32_t bits = bits_as<uint32_t>(base);
  const uint32_t nonsign = ((bits >> 13) & 0x7c00u) + (bits & 0x0fffu);
  return static_cast<uint16_t>(((w & 0x80000000u) >> 16) |
                               (shifted > 0xff000000u ? 0x7e00u : nonsign));
#endif
}

C10_HOST_DEVICE inline float bfloat16_to_float(uint16_t bits) {
  return bits_as<float>(static_cast<uint32_t>(bits) << 16);
}

C10_HOST_DEVICE inline uint16_t float_to_bfloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  if (value != value) {
    return 0x7fc0;
  }
  const uint32_t bits = bits_as<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

} // namespace musacoder

namespace c10 {
inline namespace mc_facade {

// The toolkit's own types cost a third of a second: they are known where a source names them.
#ifdef MC_TOOLKIT_HALF
#define MC_NATIVE_Half                                                                   \
  C10_HOST_DEVICE Half(const __half& value) : x(::musacoder::bits_as<unsigned short>(value)) {} \
  C10_HOST_DEVICE operator __half() const { return ::musacoder::bits_as<__half>(x); }
#define MC_NATIVE_BFloat16                                                               \
  C10_HOST_DEVICE BFloat16(const __nv_bfloat16& value)                                   \
      : x(::musacoder::bits_as<unsigned short>(value)) {}                                \
  explicit C10_HOST_DEVICE operator __nv_bfloat16() const {                              \
    return ::musacoder::bits_as<__nv_bfloat16>(x);                                       \
  }
#else
#define MC_NATIVE_Half
#define MC_NATIVE_BFloat16
#endif
#define MC_HALF_TYPE(T, to_float, from_float)                                      \
  struct alignas(2) T {                                                            \
    unsigned short x;                                                              \
    struct from_bits_t {};                                                         \
    static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return from_bits_t(); } \
    T() = default;                                                                 \
    constexpr C10_HOST_DEVICE T(unsigned short bits, from_bits_t) : x(bits) {}     \
    C10_HOST_DEVICE T(float value) : x(::musacoder::from_float(value)) {}          \
    C10_HOST_DEVICE operator float() const { return ::musacoder::to_float(x); }    \
    MC_NATIVE_##T                                                                  \
  };
MC_HALF_TYPE(Half, half_to_float, float_to_half)
MC_HALF_TYPE(BFloat16, bfloat16_to_float, float_to_bfloat16)
#undef MC_HALF_TYPE

#define MC_HALF_OPERATOR(T, op)                                                             \
  C10_HOST_DEVICE inline T operator op(const T& a, const T& b) {                                            \
    return static_cast<T>(static_cast<float>(a) op static_cast<float>(b));                  \
  }                                                                                         \
  C10_HOST_DEVICE inline T& operator op##=(T & a, const T & b) {                                            \
    a = a op b;                                                                             \
    return a;                                                                               \
  }                                                                                         \
  C10_HOST_DEVICE inline float operator op(T a, float b) { return static_cast<float>(a) op b; }             \
  C10_HOST_DEVICE inline float operator op(float a, T b) { return a op static_cast<float>(b); }             \
  C10_HOST_DEVICE inline float& operator op##=(float& a, const T& b) { return a op##= static_cast<float>(b); } \
  C10_HOST_DEVICE inline double operator op(T a, double b) { return static_cast<double>(a) op b; }          \
  C10_HOST_DEVICE inline double operator op(double a, T b) { return a op static_cast<double>(b); }          \
  C10_HOST_DEVICE inline T operator op(T a, int b) { return a op static_cast<T>(static_cast<float>(b)); }   \
  C10_HOST_DEVICE inline T operator op(int a, T b) { return static_cast<T>(static_cast<float>(a)) op b; }   \
  C10_HOST_DEVICE inline T operator op(T a, int64_t b) { return a op static_cast<T>(static_cast<float>(b)); } \
  C10_HOST_DEVICE inline T operator op(int64_t a, T b) { return static_cast<T>(static_cast<float>(a)) op b; }
#define MC_HALF_OPERATORS(T)                              \
  MC_HALF_OPERATOR(T, +)                                  \
  MC_HALF_OPERATOR(T, -)                                  \
  MC_HALF_OPERATOR(T, *)                                  \
  MC_HALF_OPERATOR(T, /)                                  \
  C10_HOST_DEVICE inline T operator-(const T& a) { return static_cast<T>(-static_cast<float>(a)); }
MC_HALF_OPERATORS(Half)
MC_HALF_OPERATORS(BFloat16)
#undef MC_HALF_OPERATORS
#undef MC_HALF_OPERATOR

// As in PyTorch, only bfloat16 is ordered by operators of its own.
C10_HOST_DEVICE inline bool operator<(const BFloat16& a, const BFloat16& b) {
  return static_cast<float>(a) < static_cast<float>(b);
}
C10_HOST_DEVICE inline bool operator>(const BFloat16& a, const BFloat16& b) {
  return static_cast<float>(a) > static_cast<float>(b);
}

#ifndef MC_DEVICE_UNIT
inline std::ostream& operator<<(std::ostream& out, const Half& value) {
  return out << static_cast<float>(value);
}
inline std::ostream& operator<<(std::ostream& out, const BFloat16& value) {
  return out << static_cast<float>(value);
}
#endif

} // namespace mc_facade
} // namespace c10

namespace at {
inline namespace mc_facade {
using c10::BFloat16;
using c10::Half;
} // namespace mc_facade
} // namespace at

namespace std {

#define MC_HALF_LIMITS(T, digits_, digits10_, min_exponent_, max_exponent_, lowest_, min_, max_, \
                       epsilon_, infinity_, nan_, denorm_min_)                                   \
  template <>                                                                                    \
  class numeric_limits<c10::T> {                                                                 \
   public:                                                                                       \
    static constexpr bool is_specialized = true;                                                 \
    static constexpr bool is_signed = true;                                                      \
    static constexpr bool is_integer = false;                                                    \
    static constexpr bool is_exact = false;                                                      \
    static constexpr bool has_infinity = true;                                                   \
    static constexpr bool has_quiet_NaN = true;                                                  \
    static constexpr int digits = digits_;                                                       \
    static constexpr int digits10 = digits10_;                                                   \
    static constexpr int radix = 2;                                                              \
    static constexpr int min_exponent = min_exponent_;                                           \
    static constexpr int max_exponent = max_exponent_;                                           \
    static constexpr c10::T min() { return {min_, c10::T::from_bits()}; }                        \
    static constexpr c10::T lowest() { return {lowest_, c10::T::from_bits()}; }                  \
    static constexpr c10::T max() { return {max_, c10::T::from_bits()}; }                        \
    static constexpr c10::T epsilon() { return {epsilon_, c10::T::from_bits()}; }                \
    static constexpr c10::T infinity() { return {infinity_, c10::T::from_bits()}; }              \
    static constexpr c10::T quiet_NaN() { return {nan_, c10::T::from_bits()}; }                  \
    static constexpr c10::T denorm_min() { return {denorm_min_, c10::T::from_bits()}; }          \
  };
MC_HALF_LIMITS(Half, 11, 3, -13, 16, 0xFBFF, 0x0400, 0x7BFF, 0x1400, 0x7C00, 0x7E00, 0x0001)
MC_HALF_LIMITS(BFloat16, 8, 2, -125, 128, 0xFF7F, 0x0080, 0x7F7F, 0x3C00, 0x7F80, 0x7FC0, 0x0001)
#undef MC_HALF_LIMITS

} // namespace std
