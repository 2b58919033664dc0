#pragma once

#include <c10/core/ScalarType.h>

namespace at {
inline namespace mc_facade {

// What a reduced type is computed in.
template <typename scalar_t>
struct OpMathType {
  using type = scalar_t;
};
template <>
struct OpMathType<Half> {
  using type = float;
};
template <>
struct OpMathType<BFloat16> {
  using type = float;
};
template <typename T>
using opmath_type = typename OpMathType<T>::type;

} // namespace mc_facade
} // namespace at
