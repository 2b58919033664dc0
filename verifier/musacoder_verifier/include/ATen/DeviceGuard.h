#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

namespace at {
inline namespace mc_facade {

using c10::DeviceGuard;
using c10::OptionalDeviceGuard;

inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor.device()) : std::nullopt;
}
inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? device_of(*tensor) : std::nullopt;
}

} // namespace mc_facade
} // namespace at
