#pragma once

#include <c10/cuda/CUDAMacros.h>
#include <c10/util/Exception.h>
#ifndef MC_DEVICE_UNIT
#include <cuda.h>
#endif
#include <cuda_runtime_api.h>
#include <musacoder/abi_cuda.h>

namespace c10 {
inline namespace mc_facade {
class CUDAError : public Error {
  using Error::Error;
};
} // namespace mc_facade
} // namespace c10

// The shim words the error as PyTorch does, and clears it as PyTorch does.
#define C10_CUDA_CHECK(EXPR)                                                            \
  do {                                                                                  \
    const cudaError_t __err = EXPR;                                                     \
    if (C10_UNLIKELY(__err != cudaSuccess)) {                                           \
      ::musacoder::ensure(                                                              \
          mc_cuda_check(static_cast<int>(__err), __FILE__, __func__, __LINE__));        \
    }                                                                                   \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                  \
  do {                                                             \
    const cudaError_t __err = EXPR;                                \
    if (C10_UNLIKELY(__err != cudaSuccess)) {                      \
      [[maybe_unused]] auto error_unused = cudaGetLastError();     \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(__err));     \
    }                                                              \
  } while (0)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR)                                       \
  do {                                                                    \
    const cudaError_t __err = EXPR;                                       \
    if (C10_UNLIKELY(__err != cudaSuccess)) {                             \
      [[maybe_unused]] cudaError_t error_unused = cudaGetLastError();     \
    }                                                                     \
  } while (0)
#define C10_CUDA_CLEAR_ERROR()                                          \
  do {                                                                  \
    [[maybe_unused]] cudaError_t error_unused = cudaGetLastError();     \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
