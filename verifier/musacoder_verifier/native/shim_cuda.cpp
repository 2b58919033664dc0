// The shim library: PyTorch's own streams, devices and handles. MC_WITH_CUDA tells that the user's
// PyTorch has them.
#include "musacoder/abi_cuda.h"

#include "errors.h"

#ifdef MC_WITH_CUDA
#include <stdexcept>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

// Declared here: their header counts on those of cuBLAS, cuSPARSE and cuSOLVER, which a toolkit from
// packages may lack. Return types are no part of a function's linkage name.
struct cublasContext;
namespace at::cuda {
C10_IMPORT cudaDeviceProp* getCurrentDeviceProperties();
C10_IMPORT cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
// Up to some version without the argument, then with it: the one that is there is called.
C10_IMPORT __attribute__((weak)) cublasContext* getCurrentCUDABlasHandle();
C10_IMPORT __attribute__((weak)) cublasContext* getCurrentCUDABlasHandle(bool setup);
} // namespace at::cuda
#endif

using musacoder::guarded;

namespace {

#ifdef MC_WITH_CUDA
c10::DeviceIndex index_of(int device) { return static_cast<c10::DeviceIndex>(device); }

cublasContext* blas_handle() {
  cublasContext* (*plain)() = &at::cuda::getCurrentCUDABlasHandle;
  cublasContext* (*set_up)(bool) = &at::cuda::getCurrentCUDABlasHandle;
  if (plain != nullptr) return plain();
  if (set_up != nullptr) return set_up(true);
  throw std::runtime_error("this PyTorch has no cuBLAS handle");
}

void give(const c10::cuda::CUDAStream& made, int* device, void** stream) {
  *device = made.device_index();
  *stream = made.stream();
}
#else
int without_cuda() {
  return musacoder::fail(MC_RUNTIME_ERROR, "Torch not compiled with CUDA enabled");
}
#endif

} // namespace

extern "C" {

#ifdef MC_WITH_CUDA

int mc_cuda_device_count(void) { return c10::cuda::device_count(); }

int mc_cuda_current_device(int* device) {
  return guarded([&] { *device = c10::cuda::current_device(); });
}

int mc_cuda_exchange_device(int device, int* before) {
  return guarded([&] {
    *before = device < 0 ? c10::cuda::current_device() : c10::cuda::ExchangeDevice(index_of(device));
  });
}

int mc_cuda_synchronize(int device) {
  return guarded([&] {
    const auto before = c10::cuda::current_device();
    if (device >= 0) {
      c10::cuda::set_device(index_of(device));
    }
    c10::cuda::device_synchronize();
    c10::cuda::set_device(before);
  });
}

int mc_cuda_current_stream(int* device, void** stream) {
  return guarded(
      [&] { give(c10::cuda::getCurrentCUDAStream(index_of(*device)), device, stream); });
}

int mc_cuda_default_stream(int* device, void** stream) {
  return guarded(
      [&] { give(c10::cuda::getDefaultCUDAStream(index_of(*device)), device, stream); });
}

int mc_cuda_pool_stream(int priority, int* device, void** stream) {
  return guarded(
      [&] { give(c10::cuda::getStreamFromPool(priority < 0, index_of(*device)), device, stream); });
}

int mc_cuda_set_current_stream(void* stream, int device) {
  return guarded([&] {
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(
        static_cast<cudaStream_t>(stream), index_of(device)));
  });
}

int mc_cuda_device_properties(int device, void** properties) {
  return guarded([&] {
    *properties = device < 0 ? at::cuda::getCurrentDeviceProperties()
                             : at::cuda::getDeviceProperties(index_of(device));
  });
}

int mc_cuda_blas_handle(void** handle) {
  return guarded([&] { *handle = blas_handle(); });
}

const char* mc_cuda_blas_status(int status) {
  static const char* const names[] = {
      "CUBLAS_STATUS_SUCCESS",        "CUBLAS_STATUS_NOT_INITIALIZED", "",
      "CUBLAS_STATUS_ALLOC_FAILED",   "",                              "",
      "",                             "CUBLAS_STATUS_INVALID_VALUE",   "CUBLAS_STATUS_ARCH_MISMATCH",
      "",                             "",                              "CUBLAS_STATUS_MAPPING_ERROR",
      "",                             "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR",
      "CUBLAS_STATUS_NOT_SUPPORTED",  "CUBLAS_STATUS_LICENSE_ERROR"};
  const bool known = status >= 0 && status < 17 && *names[status] != 0;
  return known ? names[status] : "unknown cuBLAS error";
}

int mc_cuda_check(int error, const char* file, const char* function, int line) {
  return guarded(
      [&] { c10::cuda::c10_cuda_check_implementation(error, file, function, line, true); });
}

#else

int mc_cuda_device_count(void) { return 0; }
int mc_cuda_current_device(int*) { return without_cuda(); }
int mc_cuda_exchange_device(int, int*) { return without_cuda(); }
int mc_cuda_synchronize(int) { return without_cuda(); }
int mc_cuda_current_stream(int*, void**) { return without_cuda(); }
int mc_cuda_default_stream(int*, void**) { return without_cuda(); }
int mc_cuda_pool_stream(int, int*, void**) { return without_cuda(); }
int mc_cuda_set_current_stream(void*, int) { return without_cuda(); }
int mc_cuda_device_properties(int, void**) { return without_cuda(); }
int mc_cuda_blas_handle(void**) { return without_cuda(); }
const char* mc_cuda_blas_status(int) { return "unknown cuBLAS error"; }
int mc_cuda_check(int, const char*, const char*, int) { return without_cuda(); }

#endif

} // extern "C"
