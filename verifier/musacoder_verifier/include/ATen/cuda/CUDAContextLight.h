#pragma once

#include <c10/cuda/CUDAFunctions.h>

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#endif
#if __has_include(<cusparse.h>)
#include <cusparse.h>
#endif

namespace at {
namespace cuda {
inline namespace mc_facade {

inline int64_t getNumGPUs() { return c10::cuda::device_count(); }
inline bool is_available() { return c10::cuda::device_count() > 0; }
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
  void* properties = nullptr;
  ::musacoder::ensure(mc_cuda_device_properties(device, &properties));
  return static_cast<cudaDeviceProp*>(properties);
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(-1); }
inline int warp_size() { return getCurrentDeviceProperties()->warpSize; }
#if __has_include(<cublas_v2.h>)
inline cublasHandle_t getCurrentCUDABlasHandle() {
  void* handle = nullptr;
  ::musacoder::ensure(mc_cuda_blas_handle(&handle));
  return static_cast<cublasHandle_t>(handle);
}
#endif

} // namespace mc_facade
} // namespace cuda
} // namespace at
