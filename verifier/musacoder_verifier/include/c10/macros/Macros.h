#pragma once

#if defined(__CUDACC__) || defined(__MUSACC__)
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#endif

#define C10_EXPORT __attribute__((__visibility__("default")))
#define C10_IMPORT C10_EXPORT
#define C10_HIDDEN __attribute__((__visibility__("hidden")))
#define C10_API C10_IMPORT
#define TORCH_API C10_IMPORT
#define C10_UNUSED __attribute__((__unused__))
#define C10_USED __attribute__((__used__))
#define C10_RESTRICT __restrict
#define C10_LIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 1))
#define C10_UNLIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 0))
#define C10_ALWAYS_INLINE __attribute__((__always_inline__)) inline
#define C10_NOINLINE __attribute__((noinline))
#if defined(__CUDACC__) || defined(__MUSACC__)
#define C10_WARP_SIZE 32
#define C10_MAX_THREADS_PER_BLOCK(value) (value)
#define C10_MIN_BLOCKS_PER_SM(threads, blocks) (blocks)
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#endif
#define C10_NODISCARD [[nodiscard]]
#define C10_FALLTHROUGH [[fallthrough]]

#define C10_STRINGIZE_IMPL(x) #x
#define C10_STRINGIZE(x) C10_STRINGIZE_IMPL(x)
#define C10_CONCATENATE_IMPL(s1, s2) s1##s2
#define C10_CONCATENATE(s1, s2) C10_CONCATENATE_IMPL(s1, s2)
#define C10_ANONYMOUS_VARIABLE(str) C10_CONCATENATE(str, __LINE__)

// The namespaces exist before anything is declared in them. All that we declare stands in an
// inline namespace of ours, so that our types never share a linkage name with PyTorch's.
namespace c10 {
inline namespace mc_facade {}
} // namespace c10
namespace at {
inline namespace mc_facade {}
using namespace c10;
} // namespace at
namespace c10 {
namespace cuda {
inline namespace mc_facade {}
} // namespace cuda
} // namespace c10
namespace at {
namespace cuda {
inline namespace mc_facade {}
using namespace c10::cuda;
} // namespace cuda
} // namespace at
namespace torch {
inline namespace mc_facade {}
using namespace at;
} // namespace torch
