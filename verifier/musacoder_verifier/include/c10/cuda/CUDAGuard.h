#pragma once

#include <c10/cuda/CUDAStream.h>

namespace c10 {
namespace cuda {
inline namespace mc_facade {

struct CUDAGuard {
  explicit CUDAGuard() = delete;
  explicit CUDAGuard(DeviceIndex device)
      : original_(device < 0 ? c10::cuda::current_device() : ExchangeDevice(device)),
        current_(device < 0 ? original_ : device) {}
  explicit CUDAGuard(Device device) : CUDAGuard(checked(device)) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() {
    int before = 0;
    mc_cuda_exchange_device(original_, &before);
  }
  void set_device(Device device) { set_index(checked(device)); }
  void reset_device(Device device) { set_index(checked(device)); }
  void set_index(DeviceIndex device) {
    if (device >= 0) {
      ExchangeDevice(device);
      current_ = device;
    }
  }
  Device original_device() const { return Device(DeviceType::CUDA, original_); }
  Device current_device() const { return Device(DeviceType::CUDA, current_); }

 private:
  static DeviceIndex checked(Device device) {
    TORCH_INTERNAL_ASSERT(device.is_cuda(), device);
    return device.index();
  }
  DeviceIndex original_;
  DeviceIndex current_;
};

struct OptionalCUDAGuard {
  explicit OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device.has_value()) {
      guard_.emplace(*device);
    }
  }
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> device) {
    if (device.has_value()) {
      guard_.emplace(*device);
    }
  }
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
  ~OptionalCUDAGuard() = default;
  void set_device(Device device) {
    if (guard_.has_value()) {
      guard_->set_device(device);
    } else {
      guard_.emplace(device);
    }
  }
  void reset_device(Device device) { set_device(device); }
  void set_index(DeviceIndex device) { set_device(Device(DeviceType::CUDA, device)); }
  std::optional<Device> original_device() const {
    return guard_.has_value() ? std::make_optional(guard_->original_device()) : std::nullopt;
  }
  std::optional<Device> current_device() const {
    return guard_.has_value() ? std::make_optional(guard_->current_device()) : std::nullopt;
  }
  void reset() { guard_.reset(); }

 private:
  std::optional<CUDAGuard> guard_;
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard() = delete;
  explicit CUDAStreamGuard(CUDAStream stream)
      : device_(stream.device_index()),
        original_(getCurrentCUDAStream(stream.device_index())),
        current_(stream) {
    setCurrentCUDAStream(stream);
  }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  ~CUDAStreamGuard() {
    mc_cuda_set_current_stream(original_.stream(), original_.device_index());
  }
  CUDAStream original_stream() const { return original_; }
  CUDAStream current_stream() const { return current_; }
  Device current_device() const { return device_.current_device(); }
  Device original_device() const { return device_.original_device(); }

 private:
  CUDAGuard device_;
  CUDAStream original_;
  CUDAStream current_;
};

} // namespace mc_facade
} // namespace cuda
} // namespace c10
