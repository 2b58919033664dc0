#pragma once

#include <c10/macros/Macros.h>
#include <type_traits>

namespace at {
inline namespace mc_facade {

template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
C10_HOST_DEVICE T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <typename T>
C10_HOST_DEVICE T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

} // namespace mc_facade
} // namespace at
