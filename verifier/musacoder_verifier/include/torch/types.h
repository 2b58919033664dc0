#pragma once

#include <ATen/ATen.h>

namespace torch {
inline namespace mc_facade {

using Dtype = at::ScalarType;
using std::nullopt;
using std::optional;

constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kUInt16 = at::kUInt16;
constexpr auto kUInt32 = at::kUInt32;
constexpr auto kUInt64 = at::kUInt64;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
constexpr auto kU8 = kUInt8;
constexpr auto kU16 = kUInt16;
constexpr auto kU32 = kUInt32;
constexpr auto kU64 = kUInt64;
constexpr auto kI8 = kInt8;
constexpr auto kI16 = kInt16;
constexpr auto kI32 = kInt32;
constexpr auto kI64 = kInt64;
constexpr auto kF16 = kFloat16;
constexpr auto kF32 = kFloat32;
constexpr auto kF64 = kFloat64;

namespace autograd {
using Variable = at::Tensor;
} // namespace autograd

// A tensor of one number; lists of numbers take the stock lane. PyTorch widens integers, and gives
// real numbers its default type.
template <typename T,
          typename = std::enable_if_t<
              std::is_same_v<T, uint8_t> || std::is_same_v<T, int8_t> ||
              std::is_same_v<T, int16_t> || std::is_same_v<T, int> || std::is_same_v<T, int64_t> ||
              std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bool>>>
at::Tensor tensor(T value, const at::TensorOptions& options = {}) {
  MC_NAME_OPERATOR("aten::scalar_tensor", "");
  static const mc_operator* const target = ::musacoder::find_operator("aten::scalar_tensor", "");
  at::ScalarType type = at::CppTypeToScalarType<T>::value;
  if (options.has_dtype()) {
    type = c10::typeMetaToScalarType(options.dtype());
  } else if (std::is_floating_point_v<T>) {
    type = static_cast<at::ScalarType>(mc_default_dtype());
  } else if (std::is_same_v<T, int>) {
    type = at::kLong;
  }
  at::Tensor made = ::musacoder::call_operator<at::Tensor>(
      target, at::Scalar(value), std::optional<at::ScalarType>(type), options.layout_opt(),
      options.device_opt(), options.pinned_memory_opt());
  if (options.requires_grad()) {
    made.set_requires_grad(true);
  }
  return made;
}

} // namespace mc_facade
} // namespace torch
