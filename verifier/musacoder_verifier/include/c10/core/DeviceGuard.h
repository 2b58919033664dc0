#pragma once

#include <c10/core/Device.h>
#include <musacoder/abi_cuda.h>

namespace c10 {
inline namespace mc_facade {

// Makes a device current for a scope: for the CPU there is nothing to do.
class DeviceGuard {
 public:
  explicit DeviceGuard() = delete;
  explicit DeviceGuard(Device device) : original_(device), current_(device) {
    if (device.is_cuda()) {
      int before = 0;
      if (device.has_index()) {
        ::musacoder::ensure(mc_cuda_exchange_device(device.index(), &before));
      } else {
        ::musacoder::ensure(mc_cuda_current_device(&before));
        current_.set_index(static_cast<DeviceIndex>(before));
      }
      original_.set_index(static_cast<DeviceIndex>(before));
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (original_.is_cuda()) {
      int before = 0;
      mc_cuda_exchange_device(original_.index(), &before);
    }
  }
  Device original_device() const { return original_; }
  Device current_device() const { return current_; }

 private:
  Device original_;
  Device current_;
};

class OptionalDeviceGuard {
 public:
  explicit OptionalDeviceGuard() = default;
  explicit OptionalDeviceGuard(Device device) { guard_.emplace(device); }
  explicit OptionalDeviceGuard(std::optional<Device> device) {
    if (device.has_value()) {
      guard_.emplace(*device);
    }
  }
  OptionalDeviceGuard(const OptionalDeviceGuard&) = delete;
  OptionalDeviceGuard& operator=(const OptionalDeviceGuard&) = delete;
  ~OptionalDeviceGuard() = default;
  void reset_device(Device device) { guard_.emplace(device); }
  std::optional<Device> original_device() const {
    return guard_.has_value() ? std::make_optional(guard_->original_device()) : std::nullopt;
  }
  std::optional<Device> current_device() const {
    return guard_.has_value() ? std::make_optional(guard_->current_device()) : std::nullopt;
  }

 private:
  std::optional<DeviceGuard> guard_;
};

} // namespace mc_facade
} // namespace c10
