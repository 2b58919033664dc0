#pragma once

#include <c10/core/Device.h>

namespace c10 {
inline namespace mc_facade {

struct TensorOptions {
  TensorOptions() = default;
  TensorOptions(Layout layout) : layout_(layout) {}
  template <typename T, typename = std::enable_if_t<std::is_same_v<std::decay_t<T>, Device>>>
  TensorOptions(T&& device) : device_(std::forward<T>(device)) {}
  template <typename... Args,
            typename = std::enable_if_t<std::is_constructible_v<Device, Args&&...>>>
  TensorOptions(Args&&... args) : TensorOptions(Device(std::forward<Args>(args)...)) {}
  TensorOptions(caffe2::TypeMeta dtype) : dtype_(dtype) {}
  TensorOptions(ScalarType dtype) : dtype_(scalarTypeToTypeMeta(dtype)) {}
  TensorOptions(MemoryFormat memory_format) : memory_format_(memory_format) {}

  [[nodiscard]] TensorOptions device(std::optional<Device> device) const noexcept {
    TensorOptions options = *this;
    options.device_ = device;
    return options;
  }
  template <typename... Args>
  [[nodiscard]] TensorOptions device(Args&&... args) const noexcept {
    return device(std::optional<Device>(std::in_place, std::forward<Args>(args)...));
  }
  [[nodiscard]] TensorOptions device_index(DeviceIndex index) const noexcept {
    return device(DeviceType::CUDA, index);
  }
  [[nodiscard]] TensorOptions dtype(std::optional<caffe2::TypeMeta> dtype) const noexcept {
    TensorOptions options = *this;
    options.dtype_ = dtype;
    return options;
  }
  [[nodiscard]] TensorOptions dtype(std::optional<ScalarType> dtype) const noexcept {
    TensorOptions options = *this;
    options.dtype_.reset();
    if (dtype.has_value()) {
      options.dtype_ = scalarTypeToTypeMeta(*dtype);
    }
    return options;
  }
  template <typename T>
  TensorOptions& dtype() {
    dtype_ = caffe2::TypeMeta::Make<T>();
    return *this;
  }
  [[nodiscard]] TensorOptions layout(std::optional<Layout> layout) const noexcept {
    TensorOptions options = *this;
    options.layout_ = layout;
    return options;
  }
  [[nodiscard]] TensorOptions requires_grad(std::optional<bool> requires_grad) const noexcept {
    TensorOptions options = *this;
    options.requires_grad_ = requires_grad;
    return options;
  }
  [[nodiscard]] TensorOptions pinned_memory(std::optional<bool> pinned_memory) const noexcept {
    TensorOptions options = *this;
    options.pinned_memory_ = pinned_memory;
    return options;
  }
  [[nodiscard]] TensorOptions memory_format(std::optional<MemoryFormat> format) const noexcept {
    TensorOptions options = *this;
    options.memory_format_ = format;
    return options;
  }

  Device device() const noexcept { return device_.value_or(Device(DeviceType::CPU)); }
  bool has_device() const noexcept { return device_.has_value(); }
  std::optional<Device> device_opt() const noexcept { return device_; }
  DeviceIndex device_index() const noexcept { return device().index(); }
  caffe2::TypeMeta dtype() const noexcept {
    return dtype_.has_value() ? *dtype_
                              : scalarTypeToTypeMeta(static_cast<ScalarType>(mc_default_dtype()));
  }
  bool has_dtype() const noexcept { return dtype_.has_value(); }
  std::optional<caffe2::TypeMeta> dtype_opt() const noexcept { return dtype_; }
  Layout layout() const noexcept { return layout_.value_or(kStrided); }
  bool has_layout() const noexcept { return layout_.has_value(); }
  std::optional<Layout> layout_opt() const noexcept { return layout_; }
  bool requires_grad() const noexcept { return requires_grad_.value_or(false); }
  bool has_requires_grad() const noexcept { return requires_grad_.has_value(); }
  std::optional<bool> requires_grad_opt() const noexcept { return requires_grad_; }
  bool pinned_memory() const noexcept { return pinned_memory_.value_or(false); }
  bool has_pinned_memory() const noexcept { return pinned_memory_.has_value(); }
  std::optional<bool> pinned_memory_opt() const noexcept { return pinned_memory_; }
  bool has_memory_format() const noexcept { return memory_format_.has_value(); }
  std::optional<MemoryFormat> memory_format_opt() const noexcept { return memory_format_; }

 private:
  std::optional<Device> device_;
  std::optional<caffe2::TypeMeta> dtype_;
  std::optional<Layout> layout_;
  std::optional<bool> requires_grad_;
  std::optional<bool> pinned_memory_;
  std::optional<MemoryFormat> memory_format_;
};

inline TensorOptions dtype(caffe2::TypeMeta dtype) { return TensorOptions().dtype(dtype); }
inline TensorOptions dtype(ScalarType dtype) { return TensorOptions(dtype); }
template <typename T>
inline TensorOptions dtype() {
  return dtype(caffe2::TypeMeta::Make<T>());
}
inline TensorOptions layout(Layout layout) { return TensorOptions().layout(layout); }
inline TensorOptions device(Device device) { return TensorOptions().device(device); }
inline TensorOptions device_index(DeviceIndex index) { return TensorOptions().device_index(index); }
inline TensorOptions requires_grad(bool requires_grad = true) {
  return TensorOptions().requires_grad(requires_grad);
}
inline TensorOptions memory_format(MemoryFormat format) {
  return TensorOptions().memory_format(format);
}

namespace impl {
inline std::optional<MemoryFormat> check_tensor_options_and_extract_memory_format(
    const TensorOptions& options, std::optional<MemoryFormat> memory_format) {
  TORCH_CHECK(options.requires_grad_opt() != true,
              "Operators taking TensorOptions cannot take a TensorOptions with "
              "options.requires_grad set as true. This isn't implemented yet.");
  TORCH_CHECK(!(options.has_memory_format() && memory_format.has_value()),
              "Cannot set memory_format both in TensorOptions and explicit argument; please delete "
              "the redundant setter.");
  return memory_format.has_value() ? memory_format : options.memory_format_opt();
}
} // namespace impl

} // namespace mc_facade
} // namespace c10

namespace at {
inline namespace mc_facade {
using c10::TensorOptions;
} // namespace mc_facade
} // namespace at
