#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>

namespace c10 {
namespace cuda {
inline namespace mc_facade {

inline DeviceIndex device_count() noexcept {
  return static_cast<DeviceIndex>(mc_cuda_device_count());
}
inline DeviceIndex device_count_ensure_non_zero() {
  TORCH_CHECK(device_count() != 0, "No CUDA GPUs are available");
  return device_count();
}
inline DeviceIndex current_device() {
  int device = 0;
  ::musacoder::ensure(mc_cuda_current_device(&device));
  return static_cast<DeviceIndex>(device);
}
inline DeviceIndex ExchangeDevice(DeviceIndex device) {
  int before = 0;
  ::musacoder::ensure(mc_cuda_exchange_device(device, &before));
  return static_cast<DeviceIndex>(before);
}
inline void set_device(DeviceIndex device) { ExchangeDevice(device); }
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
inline void stream_synchronize(cudaStream_t stream) {
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}
inline void memcpy_and_sync(void* target, const void* source, int64_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  C10_CUDA_CHECK(cudaMemcpyAsync(target, source, static_cast<size_t>(bytes), kind, stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

} // namespace mc_facade
} // namespace cuda
} // namespace c10
