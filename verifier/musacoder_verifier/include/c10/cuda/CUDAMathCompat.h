#pragma once

#include <c10/macros/Macros.h>
#include <cmath>

#if defined(__CUDACC__)
namespace c10 {
namespace cuda {
namespace compat {
inline namespace mc_facade {

#define MC_MATH(name)                                                     \
  __host__ __device__ inline float name(float x) { return ::name##f(x); } \
  __host__ __device__ inline double name(double x) { return ::name(x); }
MC_MATH(acos)
MC_MATH(acosh)
MC_MATH(asin)
MC_MATH(asinh)
MC_MATH(atan)
MC_MATH(atanh)
MC_MATH(ceil)
MC_MATH(cos)
MC_MATH(cosh)
MC_MATH(erf)
MC_MATH(erfc)
MC_MATH(exp)
MC_MATH(exp2)
MC_MATH(expm1)
MC_MATH(floor)
MC_MATH(lgamma)
MC_MATH(log)
MC_MATH(log10)
MC_MATH(log1p)
MC_MATH(log2)
MC_MATH(nearbyint)
MC_MATH(rint)
MC_MATH(round)
MC_MATH(rsqrt)
MC_MATH(sin)
MC_MATH(sinh)
MC_MATH(sqrt)
MC_MATH(tan)
MC_MATH(tanh)
MC_MATH(tgamma)
MC_MATH(trunc)
#undef MC_MATH
__host__ __device__ inline float abs(float x) { return ::fabsf(x); }
__host__ __device__ inline double abs(double x) { return ::fabs(x); }
#define MC_MATH(name)                                                                    \
  __host__ __device__ inline float name(float x, float y) { return ::name##f(x, y); }    \
  __host__ __device__ inline double name(double x, double y) { return ::name(x, y); }
MC_MATH(atan2)
MC_MATH(copysign)
MC_MATH(fmod)
MC_MATH(hypot)
MC_MATH(pow)
MC_MATH(remainder)
#undef MC_MATH
__host__ __device__ inline float max(float x, float y) { return ::fmaxf(x, y); }
__host__ __device__ inline double max(double x, double y) { return ::fmax(x, y); }
__host__ __device__ inline float min(float x, float y) { return ::fminf(x, y); }
__host__ __device__ inline double min(double x, double y) { return ::fmin(x, y); }

} // namespace mc_facade
} // namespace compat
} // namespace cuda
} // namespace c10
#endif
