#pragma once

#include <c10/core/ScalarType.h>

namespace c10 {
inline namespace mc_facade {

// A number without a tensor: double, int64 or bool. Complex numbers take the stock lane.
class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
#define MC_INTEGER_CONSTRUCTOR(type) \
  Scalar(type value) : tag_(MC_INT) { integer_ = static_cast<int64_t>(value); }
  MC_INTEGER_CONSTRUCTOR(uint8_t)
  MC_INTEGER_CONSTRUCTOR(int8_t)
  MC_INTEGER_CONSTRUCTOR(int16_t)
  MC_INTEGER_CONSTRUCTOR(int)
  MC_INTEGER_CONSTRUCTOR(int64_t)
  MC_INTEGER_CONSTRUCTOR(long long)
  MC_INTEGER_CONSTRUCTOR(uint16_t)
  MC_INTEGER_CONSTRUCTOR(uint32_t)
#undef MC_INTEGER_CONSTRUCTOR
  Scalar(uint64_t value) : tag_(MC_INT) {
    TORCH_CHECK(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
                "value cannot be converted to type int64_t without overflow");
    integer_ = static_cast<int64_t>(value);
  }
#define MC_REAL_CONSTRUCTOR(type) \
  Scalar(type value) : tag_(MC_DOUBLE) { real_ = static_cast<double>(value); }
  MC_REAL_CONSTRUCTOR(float)
  MC_REAL_CONSTRUCTOR(double)
  MC_REAL_CONSTRUCTOR(Half)
  MC_REAL_CONSTRUCTOR(BFloat16)
#undef MC_REAL_CONSTRUCTOR
  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, bool>* = nullptr>
  Scalar(T value) : tag_(MC_BOOL) {
    integer_ = value ? 1 : 0;
  }

  bool isFloatingPoint() const { return tag_ == MC_DOUBLE; }
  bool isIntegral(bool includeBool) const {
    return tag_ == MC_INT || (includeBool && tag_ == MC_BOOL);
  }
  bool isBoolean() const { return tag_ == MC_BOOL; }
  bool isComplex() const { return false; }
  ScalarType type() const {
    return tag_ == MC_DOUBLE ? ScalarType::Double
        : tag_ == MC_INT     ? ScalarType::Long
                             : ScalarType::Bool;
  }
  template <typename T>
  T to() const = delete;

#define MC_ACCESSOR(type, name)                                    \
  type to##name() const {                                          \
    return tag_ == MC_DOUBLE ? convert<type>(real_, #type) : convert<type>(integer_, #type); \
  }
  MC_FOR_SCALAR_TYPES(MC_ACCESSOR)
#undef MC_ACCESSOR

  mc_value mc_pack() const {
    mc_value value{};
    value.tag = tag_;
    if (tag_ == MC_DOUBLE) {
      value.real = real_;
    } else {
      value.integer = integer_;
    }
    return value;
  }
  static Scalar mc_unpack(const mc_value& value) {
    switch (value.tag) {
      case MC_DOUBLE:
        return Scalar(value.real);
      case MC_BOOL:
        return Scalar(value.integer != 0);
      default:
        return Scalar(value.integer);
    }
  }

 private:
  // PyTorch's checked conversion: what does not fit raises instead of wrapping.
  template <typename To, typename From>
  static To convert(From from, const char* name) {
    if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool>) {
      const bool unsigned_wrap = std::is_unsigned_v<To> && from < 0 &&
          -static_cast<double>(from) <= static_cast<double>(std::numeric_limits<To>::max());
      TORCH_CHECK(unsigned_wrap ||
                      (static_cast<double>(from) >=
                           static_cast<double>(std::numeric_limits<To>::lowest()) &&
                       static_cast<double>(from) <=
                           static_cast<double>(std::numeric_limits<To>::max())),
                  "value cannot be converted to type ", name, " without overflow");
      return static_cast<To>(unsigned_wrap ? static_cast<To>(static_cast<int64_t>(from))
                                           : static_cast<To>(from));
    } else if constexpr (std::is_same_v<To, bool>) {
      return from != 0;
    } else if constexpr (std::is_same_v<To, double>) {
      return static_cast<double>(from);
    } else {
      const double value = static_cast<double>(from);
      const double limit = static_cast<double>(static_cast<float>(std::numeric_limits<To>::max()));
      TORCH_CHECK(!(value > limit || value < -limit) || std::isinf(value),
                  "value cannot be converted to type ", name, " without overflow");
      return static_cast<To>(static_cast<float>(value));
    }
  }

  int32_t tag_;
  union {
    double real_;
    int64_t integer_;
  };
};

#define MC_TO(type, name)             \
  template <>                         \
  inline type Scalar::to<type>() const { \
    return to##name();                \
  }
MC_FOR_SCALAR_TYPES(MC_TO)
#undef MC_TO

} // namespace mc_facade
} // namespace c10

namespace at {
inline namespace mc_facade {
using c10::Scalar;
} // namespace mc_facade
} // namespace at
