#pragma once

#include <c10/core/ScalarType.h>

namespace at {
inline namespace mc_facade {

// In what a sum of a type is kept: wider on the host, narrower on a device.
template <typename T, bool is_cuda>
struct AccumulateType;
#define MC_ACCUMULATE(T, on_device, on_host) \
  template <>                                \
  struct AccumulateType<T, true> {           \
    using type = on_device;                  \
  };                                         \
  template <>                                \
  struct AccumulateType<T, false> {          \
    using type = on_host;                    \
  };
MC_ACCUMULATE(Half, float, float)
MC_ACCUMULATE(BFloat16, float, float)
MC_ACCUMULATE(float, float, double)
MC_ACCUMULATE(double, double, double)
MC_ACCUMULATE(int8_t, int64_t, int64_t)
MC_ACCUMULATE(uint8_t, int64_t, int64_t)
MC_ACCUMULATE(char, int64_t, int64_t)
MC_ACCUMULATE(int16_t, int64_t, int64_t)
MC_ACCUMULATE(int32_t, int64_t, int64_t)
MC_ACCUMULATE(int64_t, int64_t, int64_t)
MC_ACCUMULATE(bool, bool, bool)
#undef MC_ACCUMULATE

template <typename T, bool is_cuda>
using acc_type = typename AccumulateType<T, is_cuda>::type;

} // namespace mc_facade
} // namespace at
