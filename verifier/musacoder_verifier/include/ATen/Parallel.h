// at::parallel_for over OpenMP, cutting the range as PyTorch does.
#pragma once

#include <c10/util/Exception.h>

namespace at {
inline namespace mc_facade {

inline int64_t divup(int64_t x, int64_t y) { return (x + y - 1) / y; }
inline int get_num_threads() { return mc_get_num_threads(); }
inline int get_thread_num() { return mc_get_thread_num(); }
inline bool in_parallel_region() { return mc_in_parallel_region() != 0; }

namespace internal {

struct ThreadIdGuard {
  explicit ThreadIdGuard(int number) : before_(mc_get_thread_num()) { mc_set_thread_num(number); }
  ~ThreadIdGuard() { mc_set_thread_num(before_); }
  ThreadIdGuard(const ThreadIdGuard&) = delete;
  ThreadIdGuard& operator=(const ThreadIdGuard&) = delete;

 private:
  int before_;
};

template <typename F>
inline void invoke_parallel(int64_t begin, int64_t end, int64_t grain_size, const F& f) {
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error;
#pragma omp parallel
  {
#ifdef _OPENMP
    int64_t num_threads = omp_get_num_threads();
    const int64_t thread = omp_get_thread_num();
#else
    int64_t num_threads = 1;
    const int64_t thread = 0;
#endif
    if (grain_size > 0) {
      num_threads = std::min(num_threads, divup(end - begin, grain_size));
    }
    const int64_t chunk = divup(end - begin, num_threads);
    const int64_t first = begin + thread * chunk;
    if (first < end) {
      try {
        ThreadIdGuard guard(static_cast<int>(thread));
        f(first, std::min(end, chunk + first));
      } catch (...) {
        if (!failed.test_and_set()) {
          error = std::current_exception();
        }
      }
    }
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

inline bool worth_parallel(int64_t count, int64_t grain_size) {
  return count > grain_size && count > 1 && !in_parallel_region() && get_num_threads() > 1;
}

} // namespace internal

template <class F>
inline void parallel_for(const int64_t begin, const int64_t end, const int64_t grain_size,
                         const F& f) {
  if (begin >= end) {
    return;
  }
  if (!internal::worth_parallel(end - begin, grain_size)) {
    internal::ThreadIdGuard guard(0);
    f(begin, end);
    return;
  }
  internal::invoke_parallel(begin, end, grain_size, f);
}

template <class scalar_t, class F, class SF>
inline scalar_t parallel_reduce(const int64_t begin, const int64_t end, const int64_t grain_size,
                                const scalar_t ident, const F& f, const SF& sf) {
  TORCH_CHECK(grain_size >= 0);
  if (begin >= end) {
    return ident;
  }
  if (!internal::worth_parallel(end - begin, grain_size)) {
    internal::ThreadIdGuard guard(0);
    return f(begin, end, ident);
  }
  std::vector<scalar_t> results(static_cast<size_t>(get_num_threads()), ident);
  internal::invoke_parallel(begin, end, grain_size, [&](int64_t first, int64_t last) {
    results[static_cast<size_t>(get_thread_num())] = f(first, last, ident);
  });
  scalar_t result = ident;
  for (auto partial : results) {
    result = sf(result, partial);
  }
  return result;
}

} // namespace mc_facade
} // namespace at
