#pragma once

#include <c10/util/Exception.h>

// A grid-stride loop over `n` elements.
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                            \
  int64_t _i_n_d_e_x = ((int64_t)blockIdx.x) * blockDim.x + threadIdx.x;                   \
  for (index_type i = _i_n_d_e_x; _i_n_d_e_x < (n);                                        \
       _i_n_d_e_x += ((int64_t)blockDim.x) * gridDim.x, i = _i_n_d_e_x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)

namespace at {
namespace cuda {
namespace detail {
inline namespace mc_facade {

constexpr int CUDA_NUM_THREADS = 1024;

inline int GET_BLOCKS(const int64_t N, const int64_t max_threads_per_block = CUDA_NUM_THREADS) {
  TORCH_INTERNAL_ASSERT(N > 0, "CUDA kernel launch blocks must be positive, but got N=", N);
  constexpr int64_t max_int = std::numeric_limits<int>::max();
  const int64_t blocks = (N - 1) / max_threads_per_block + 1;
  TORCH_INTERNAL_ASSERT(blocks <= max_int, "Can't schedule too many blocks on CUDA device");
  return static_cast<int>(blocks);
}

} // namespace mc_facade
} // namespace detail
} // namespace cuda
} // namespace at
