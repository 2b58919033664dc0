// Operators as functions (generated with the Tensor class), and the factories that are no operator.
#pragma once

#include <ATen/core/Tensor.h>

namespace at {
inline namespace mc_facade {

#ifndef MC_DEVICE_UNIT
namespace mc_blob {

inline Tensor make(void* data, IntArrayRef sizes, const IntArrayRef* strides,
                   std::function<void(void*)> deleter, const TensorOptions& options) {
  struct Context {
    std::function<void(void*)> deleter;
    void* data;
  };
  mc_tensor* result = nullptr;
  const auto device = options.device_opt();
  Context* context = deleter ? new Context{std::move(deleter), data} : nullptr;
  const auto release = [](void* opaque) {
    auto* context = static_cast<Context*>(opaque);
    context->deleter(context->data);
    delete context;
  };
  ::musacoder::ensure(mc_from_blob(
      data, sizes.data(), strides == nullptr ? nullptr : strides->data(),
      static_cast<int64_t>(sizes.size()), context == nullptr ? nullptr : +release, context,
      static_cast<int>(typeMetaToScalarType(options.dtype())),
      device.has_value() ? static_cast<int>(device->type()) : -1,
      device.has_value() ? device->index() : -1, &result));
  return Tensor::mc_adopt(result);
}

} // namespace mc_blob

inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {}) {
  return mc_blob::make(data, sizes, nullptr, nullptr, options);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides,
                        const TensorOptions& options = {}) {
  return mc_blob::make(data, sizes, &strides, nullptr, options);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const std::function<void(void*)>& deleter,
                        const TensorOptions& options = {}) {
  return mc_blob::make(data, sizes, nullptr, deleter, options);
}
#endif

} // namespace mc_facade
} // namespace at
