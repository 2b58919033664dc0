// The part of the C ABI that knows CUDA. Where the user's PyTorch has no CUDA, each of these fails
// with PyTorch's own words, so that what was compiled against it links and loads everywhere.
#pragma once

#include <musacoder/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

int mc_cuda_device_count(void);
int mc_cuda_current_device(int* device);
// Makes `device` current; a negative one leaves it. `before` receives what was current.
int mc_cuda_exchange_device(int device, int* before);
int mc_cuda_synchronize(int device); // -1: the current device
// Streams are cudaStream_t; `device` goes in as an index, or -1 for the current one, and comes out
// as the stream's own.
int mc_cuda_current_stream(int* device, void** stream);
int mc_cuda_default_stream(int* device, void** stream);
int mc_cuda_pool_stream(int priority, int* device, void** stream);
int mc_cuda_set_current_stream(void* stream, int device);
int mc_cuda_device_properties(int device, void** properties); // cudaDeviceProp
int mc_cuda_blas_handle(void** handle);                       // cublasHandle_t
const char* mc_cuda_blas_status(int status);
// Fails with PyTorch's message for a cudaError_t, and clears it.
int mc_cuda_check(int error, const char* file, const char* function, int line);

#ifdef __cplusplus
}
#endif
