#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/Half.h>

namespace c10 {
inline namespace mc_facade {

// In PyTorch's order, which its serialised files fix. Types that the fast lane cannot carry are
// here by name only: they have no C++ type.
enum class ScalarType : int8_t {
  Byte, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble,
  Bool, QInt8, QUInt8, QInt32, BFloat16, QUInt4x2, QUInt2x4, Bits1x8, Bits2x4, Bits4x2, Bits8,
  Bits16, Float8_e5m2, Float8_e4m3fn, Float8_e5m2fnuz, Float8_e4m3fnuz, UInt16, UInt32, UInt64,
  Undefined = 127
};

#define MC_FOR_SCALAR_TYPES(_) \
  _(uint8_t, Byte)             \
  _(int8_t, Char)              \
  _(int16_t, Short)            \
  _(int, Int)                  \
  _(int64_t, Long)             \
  _(::c10::Half, Half)         \
  _(float, Float)              \
  _(double, Double)            \
  _(bool, Bool)                \
  _(::c10::BFloat16, BFloat16) \
  _(uint16_t, UInt16)          \
  _(uint32_t, UInt32)          \
  _(uint64_t, UInt64)

constexpr ScalarType kComplexFloat = ScalarType::ComplexFloat;
constexpr ScalarType kComplexDouble = ScalarType::ComplexDouble;
#define MC_CONSTANT(type, name) constexpr ScalarType k##name = ScalarType::name;
MC_FOR_SCALAR_TYPES(MC_CONSTANT)
#undef MC_CONSTANT

template <typename T>
struct CppTypeToScalarType;
namespace impl {
template <ScalarType N>
struct ScalarTypeToCPPType;
#define MC_TYPE_MAP(cpp_type, name)              \
  template <>                                    \
  struct ScalarTypeToCPPType<ScalarType::name> { \
    using type = cpp_type;                       \
    static type t;                               \
  };
MC_FOR_SCALAR_TYPES(MC_TYPE_MAP)
#undef MC_TYPE_MAP
template <ScalarType N>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<N>::type;
} // namespace impl
#define MC_TYPE_MAP(cpp_type, name)  \
  template <>                        \
  struct CppTypeToScalarType<cpp_type> \
      : std::integral_constant<ScalarType, ScalarType::name> {};
MC_FOR_SCALAR_TYPES(MC_TYPE_MAP)
#undef MC_TYPE_MAP

inline const char* toString(ScalarType type) { return mc_dtype_name(static_cast<int>(type)); }

inline bool isIntegralType(ScalarType type, bool includeBool) {
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::Int:
    case ScalarType::Long:
    case ScalarType::UInt16:
    case ScalarType::UInt32:
    case ScalarType::UInt64:
      return true;
    default:
      return includeBool && type == ScalarType::Bool;
  }
}

[[deprecated]] inline bool isIntegralType(ScalarType type) { return isIntegralType(type, false); }

inline bool isFloatingType(ScalarType type) {
  switch (type) {
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::Float:
    case ScalarType::Double:
    case ScalarType::Float8_e5m2:
    case ScalarType::Float8_e4m3fn:
    case ScalarType::Float8_e5m2fnuz:
    case ScalarType::Float8_e4m3fnuz:
      return true;
    default:
      return false;
  }
}

inline bool isComplexType(ScalarType type) {
  return type == ScalarType::ComplexHalf || type == ScalarType::ComplexFloat ||
      type == ScalarType::ComplexDouble;
}

inline size_t elementSize(ScalarType type) {
  switch (type) {
#define MC_SIZE(cpp_type, name) \
  case ScalarType::name:        \
    return sizeof(cpp_type);
    MC_FOR_SCALAR_TYPES(MC_SIZE)
#undef MC_SIZE
    case ScalarType::ComplexHalf:
      return 4;
    case ScalarType::ComplexFloat:
      return 8;
    case ScalarType::ComplexDouble:
      return 16;
    case ScalarType::Float8_e5m2:
    case ScalarType::Float8_e4m3fn:
    case ScalarType::Float8_e5m2fnuz:
    case ScalarType::Float8_e4m3fnuz:
      return 1;
    default:
      TORCH_CHECK(false, "Unknown ScalarType");
  }
}

inline std::string mc_text(ScalarType type) { return toString(type); }
#ifndef MC_DEVICE_UNIT
inline std::ostream& operator<<(std::ostream& stream, ScalarType type) {
  return stream << toString(type);
}
#endif

} // namespace mc_facade
} // namespace c10

namespace caffe2 {
inline namespace mc_facade {

// PyTorch's run-time type of an element; here no more than a ScalarType that prints as C++.
class TypeMeta final {
 public:
  TypeMeta() noexcept = default;
  std::string_view name() const noexcept { return mc_cpp_type_name(static_cast<int>(type_)); }
  size_t itemsize() const { return c10::elementSize(type_); }
  c10::ScalarType toScalarType() const { return type_; }
  bool isScalarType() const noexcept { return type_ != c10::ScalarType::Undefined; }
  bool isScalarType(c10::ScalarType type) const noexcept { return type_ == type; }
  template <typename T>
  bool Match() const noexcept {
    return type_ == c10::CppTypeToScalarType<T>::value;
  }
  template <typename T>
  static TypeMeta Make() {
    return fromScalarType(c10::CppTypeToScalarType<T>::value);
  }
  static TypeMeta fromScalarType(c10::ScalarType type) {
    TypeMeta meta;
    meta.type_ = type;
    return meta;
  }
  friend bool operator==(const TypeMeta a, const TypeMeta b) noexcept { return a.type_ == b.type_; }
  friend bool operator!=(const TypeMeta a, const TypeMeta b) noexcept { return a.type_ != b.type_; }

 private:
  c10::ScalarType type_ = c10::ScalarType::Undefined;
};

inline std::string mc_text(TypeMeta meta) { return std::string(meta.name()); }
#ifndef MC_DEVICE_UNIT
inline std::ostream& operator<<(std::ostream& stream, TypeMeta meta) {
  return stream << meta.name();
}
#endif

} // namespace mc_facade
} // namespace caffe2

namespace c10 {
inline namespace mc_facade {

inline caffe2::TypeMeta scalarTypeToTypeMeta(ScalarType type) {
  return caffe2::TypeMeta::fromScalarType(type);
}
inline ScalarType typeMetaToScalarType(caffe2::TypeMeta meta) { return meta.toScalarType(); }
inline std::optional<ScalarType> optTypeMetaToScalarType(std::optional<caffe2::TypeMeta> meta) {
  return meta.has_value() ? std::make_optional(meta->toScalarType()) : std::nullopt;
}
inline bool operator==(ScalarType type, caffe2::TypeMeta meta) { return meta.isScalarType(type); }
inline bool operator==(caffe2::TypeMeta meta, ScalarType type) { return meta.isScalarType(type); }
inline bool operator!=(ScalarType type, caffe2::TypeMeta meta) { return !(type == meta); }
inline bool operator!=(caffe2::TypeMeta meta, ScalarType type) { return !(meta == type); }

} // namespace mc_facade
} // namespace c10
