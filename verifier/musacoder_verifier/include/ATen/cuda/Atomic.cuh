#pragma once

#include <ATen/core/Tensor.h>
#ifndef MC_DEVICE_UNIT
#include <cuda.h>
#endif

// As in PyTorch, in the global namespace; the toolkit has these for the types that it knows.
template <typename T>
__device__ inline T gpuAtomicAdd(T* address, T value) {
  return atomicAdd(address, value);
}
template <typename T>
__device__ inline void gpuAtomicAddNoReturn(T* address, T value) {
  gpuAtomicAdd(address, value);
}
