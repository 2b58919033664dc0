#pragma once

#include <c10/cuda/CUDAException.h>

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define TORCH_CUDABLAS_CHECK(EXPR)                                                          \
  do {                                                                                      \
    cublasStatus_t __err = EXPR;                                                            \
    TORCH_CHECK(__err == CUBLAS_STATUS_SUCCESS, "CUDA error: ", mc_cuda_blas_status(__err), \
                " when calling `" #EXPR "`");                                               \
  } while (0)
#endif
#if __has_include(<cusparse.h>)
#include <cusparse.h>
#endif

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
