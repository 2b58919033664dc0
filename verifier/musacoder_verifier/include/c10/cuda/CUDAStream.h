#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>

namespace c10 {
namespace cuda {
inline namespace mc_facade {

// One of PyTorch's streams: the handle, and the device that it belongs to.
class CUDAStream {
 public:
  bool operator==(const CUDAStream& other) const noexcept {
    return stream_ == other.stream_ && device_ == other.device_;
  }
  bool operator!=(const CUDAStream& other) const noexcept { return !(*this == other); }
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  DeviceType device_type() const { return DeviceType::CUDA; }
  DeviceIndex device_index() const { return device_; }
  Device device() const { return Device(DeviceType::CUDA, device_); }
  bool query() const {
    DeviceGuard guard(device());
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) {
      C10_CUDA_CLEAR_ERROR();
      return false;
    }
    C10_CUDA_CHECK(status);
    return true;
  }
  void synchronize() const {
    DeviceGuard guard(device());
    stream_synchronize(stream_);
  }
  int priority() const {
    DeviceGuard guard(device());
    int priority = 0;
    C10_CUDA_CHECK(cudaStreamGetPriority(stream_, &priority));
    return priority;
  }

  static CUDAStream mc_make(void* stream, int device) {
    CUDAStream made;
    made.stream_ = static_cast<cudaStream_t>(stream);
    made.device_ = static_cast<DeviceIndex>(device);
    return made;
  }

 private:
  CUDAStream() = default;
  cudaStream_t stream_ = nullptr;
  DeviceIndex device_ = 0;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device_index = -1) {
  void* stream = nullptr;
  int device = device_index;
  ::musacoder::ensure(mc_cuda_current_stream(&device, &stream));
  return CUDAStream::mc_make(stream, device);
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex device_index = -1) {
  void* stream = nullptr;
  int device = device_index;
  ::musacoder::ensure(mc_cuda_default_stream(&device, &stream));
  return CUDAStream::mc_make(stream, device);
}
inline CUDAStream getStreamFromPool(const int priority, DeviceIndex device_index = -1) {
  void* stream = nullptr;
  int device = device_index;
  ::musacoder::ensure(mc_cuda_pool_stream(priority, &device, &stream));
  return CUDAStream::mc_make(stream, device);
}
inline CUDAStream getStreamFromPool(const bool isHighPriority = false,
                                    DeviceIndex device_index = -1) {
  return getStreamFromPool(isHighPriority ? -1 : 0, device_index);
}
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex device_index) {
  return CUDAStream::mc_make(stream, device_index);
}
inline void setCurrentCUDAStream(CUDAStream stream) {
  ::musacoder::ensure(mc_cuda_set_current_stream(stream.stream(), stream.device_index()));
}

} // namespace mc_facade
} // namespace cuda
} // namespace c10
