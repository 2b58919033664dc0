#pragma once

#include <c10/core/Device.h>
#include <musacoder/abi_cuda.h>

namespace torch {
namespace cuda {
inline namespace mc_facade {

inline c10::DeviceIndex device_count() {
  return static_cast<c10::DeviceIndex>(mc_cuda_device_count());
}
inline bool is_available() { return mc_cuda_device_count() > 0; }
inline void synchronize(int64_t device_index = -1) {
  ::musacoder::ensure(mc_cuda_synchronize(static_cast<int>(device_index)));
}

} // namespace mc_facade
} // namespace cuda
} // namespace torch
