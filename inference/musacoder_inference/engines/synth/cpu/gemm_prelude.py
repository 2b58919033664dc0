"""The C++ of the blocked matrix product that `matmul.py` instantiates."""

from __future__ import annotations

from musacoder_inference.engines.synth.cpu.prelude import register

register(
    "gemm",
    """
// Blocked matrix product after K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008): tiles of C stay in the second-level cache, panels of A and B are packed
// so that the micro-kernel reads them in order, and a ROWS x COLUMNS piece of C stays in registers.
template <typename T>
struct Blocking {
#if defined(__AVX512F__)
  static constexpr int64_t bytes = 64, rows = 12;
#else
  static constexpr int64_t bytes = 32, rows = 6;
#endif
  static constexpr int64_t width = bytes / sizeof(T);  // elements of one vector register
  static constexpr int64_t columns = 2 * width;
  static constexpr int64_t tile_rows = 192, tile_columns = 384, depth = 256;
  typedef T Vector __attribute__((vector_size(bytes)));
};

// c[rows x columns] += a[depth x rows] * b[depth x columns], a and b packed.
template <typename T>
static inline void micro_kernel(
    int64_t depth, const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c,
    int64_t c_stride) {
  using B = Blocking<T>;
  using Vector = typename B::Vector;
  Vector sums[B::rows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector left, right;
    std::memcpy(&left, b, sizeof left);
    std::memcpy(&right, b + B::width, sizeof right);
#pragma GCC unroll 12
    for (int64_t i = 0; i < B::rows; ++i) {
      sums[i][0] += a[i] * left;
      sums[i][1] += a[i] * right;
    }
    a += B::rows;
    b += B::columns;
  }
#pragma GCC unroll 12
  for (int64_t i = 0; i < B::rows; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      Vector old;
      std::memcpy(&old, c + i * c_stride + j * B::width, sizeof old);
      old += sums[i][j];
      std::memcpy(c + i * c_stride + j * B::width, &old, sizeof old);
    }
  }
}

static inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// C[batch] = A[batch] (m x k) * B[batch] (k x n) for every batch.
//   pack_a(batch, i, rows, k, depth, to): to[p * ROWS + r] = A[i + r][k + p]
//   pack_b(batch, k, depth, j, columns, to): to[p * COLUMNS + c] = B[k + p][j + c]
//   store(batch, i, j, count, sums): takes C[i][j .. j + count]
template <typename T, class PackA, class PackB, class Store>
static void gemm(
    int64_t batches, int64_t m, int64_t n, int64_t k, PackA pack_a, PackB pack_b, Store store) {
  using B = Blocking<T>;
  int64_t tile_m = std::min(round_up(m, B::rows), B::tile_rows / B::rows * B::rows);
  int64_t tile_n = std::min(round_up(n, B::columns), B::tile_columns);
  const int64_t wanted = 4 * omp_get_max_threads();
  const auto tiles = [&] {
    return batches * ((m + tile_m - 1) / tile_m) * ((n + tile_n - 1) / tile_n);
  };
  while (tiles() < wanted && tile_n > 4 * B::columns) tile_n = round_up(tile_n / 2, B::columns);
  while (tiles() < wanted && tile_m > 8 * B::rows) tile_m = round_up(tile_m / 2, B::rows);
  const int64_t tiles_m = (m + tile_m - 1) / tile_m;
  const int64_t tiles_n = (n + tile_n - 1) / tile_n;
  const double work = 2.0 * batches * m * n * k;
#pragma omp parallel if (work > 1e6)
  {
    std::vector<T> memory(tile_m * B::depth + tile_n * B::depth + tile_m * tile_n + 64);
    T* const a = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / sizeof(T);
    T* const b = a + round_up(tile_m * B::depth, 16);
    T* const c = memory.data() + memory.size() - tile_m * tile_n;
#pragma omp for collapse(3) schedule(dynamic)
    for (int64_t batch = 0; batch < batches; ++batch) {
      for (int64_t tm = 0; tm < tiles_m; ++tm) {
        for (int64_t tn = 0; tn < tiles_n; ++tn) {
          const int64_t i0 = tm * tile_m, j0 = tn * tile_n;
          const int64_t rows = std::min(tile_m, m - i0), columns = std::min(tile_n, n - j0);
          const int64_t stride = round_up(columns, B::columns);
          std::fill(c, c + round_up(rows, B::rows) * stride, T(0));
          for (int64_t k0 = 0; k0 < k; k0 += B::depth) {
            const int64_t depth = std::min(B::depth, k - k0);
            for (int64_t i = 0; i < rows; i += B::rows) {
              pack_a(batch, i0 + i, std::min(B::rows, rows - i), k0, depth, a + i * depth);
            }
            for (int64_t j = 0; j < columns; j += B::columns) {
              pack_b(batch, k0, depth, j0 + j, std::min(B::columns, columns - j), b + j * depth);
            }
            for (int64_t j = 0; j < columns; j += B::columns) {
              for (int64_t i = 0; i < rows; i += B::rows) {
                micro_kernel(depth, a + i * depth, b + j * depth, c + i * stride + j, stride);
              }
            }
          }
          for (int64_t i = 0; i < rows; ++i) {
            store(batch, i0 + i, j0, columns, c + i * stride);
          }
        }
      }
    }
  }
}
""",
)
