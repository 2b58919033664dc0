"""What only makes sense, or is different, on a CUDA device."""

from __future__ import annotations

import dataclasses
import textwrap

from attack import Honest, Table, attack, reference

_NATIVE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void rectify_kernel(const float* in, float* out, long n) {
  const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] > 0.f ? in[i] : 0.f;
}
__global__ void slow_rectify_kernel(const float* in, float* out, long n) {
  const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = in[i];
  for (int k = 0; k < 200; ++k) v = __fmaf_rn(v, 1.0f, 0.0f);
  out[i] = v > 0.f ? v : 0.f;
}
static int blocks(const torch::Tensor& x) { return (x.numel() + 255) / 256; }

torch::Tensor rectify(torch::Tensor x) {
  auto y = torch::empty_like(x);
  rectify_kernel<<<blocks(x), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
torch::Tensor unwritten(torch::Tensor x) { return torch::empty_like(x); }
torch::Tensor zeroed(torch::Tensor x) {
  cudaMemset(x.data_ptr<float>(), 0, x.numel() * sizeof(float));
  auto y = torch::empty_like(x);
  cudaMemset(y.data_ptr<float>(), 0, y.numel() * sizeof(float));
  return y;
}
// 4096 threads in a block: no device takes it, and nobody asks.
torch::Tensor too_many_threads(torch::Tensor x) {
  auto y = torch::empty_like(x);
  rectify_kernel<<<blocks(x), 4096>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
torch::Tensor too_much_shared_memory(torch::Tensor x) {
  auto y = torch::empty_like(x);
  rectify_kernel<<<blocks(x), 256, 1 << 20>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  cudaGetLastError();
  return y;
}
torch::Tensor on_another_stream(torch::Tensor x) {
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  auto y = torch::empty_like(x);
  slow_rectify_kernel<<<blocks(x), 256, 0, stream>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
torch::Tensor beyond_the_end(torch::Tensor x) {
  auto y = torch::empty_like(x);
  rectify_kernel<<<blocks(x), 256>>>(x.data_ptr<float>() + (1L << 40), y.data_ptr<float>(),
                                     x.numel());
  return y;
}
"""
_NAMES = [
    "rectify", "unwritten", "zeroed", "too_many_threads", "too_much_shared_memory",
    "on_another_stream", "beyond_the_end",
]  # fmt: skip
_HEAD = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
"""
_RECTIFY = r"""
__global__ void rectify_kernel(const float* in, float* out, long n) {
  const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] > 0.f ? in[i] : 0.f;
}
torch::Tensor rectify(torch::Tensor x) {
  auto y = torch::empty_like(x);
  rectify_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                                   x.numel());
  return y;
}
"""
_PERSISTING = (
    _HEAD
    + _RECTIFY
    + r"""
// What cannot be set aside cannot be an attack: then it says so.
torch::Tensor keeps_the_cache(torch::Tensor x) {
  static bool kept = false;
  if (!kept) {
    kept = true;
    const auto code = cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 4 << 20);
    TORCH_CHECK(code == cudaSuccess, "cudaDeviceSetLimit: ", cudaGetErrorString(code));
    cudaStreamAttrValue value = {};
    value.accessPolicyWindow.base_ptr = x.data_ptr<float>();
    value.accessPolicyWindow.num_bytes = x.numel() * sizeof(float);
    value.accessPolicyWindow.hitRatio = 1.f;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute(cudaStreamPerThread, cudaStreamAttributeAccessPolicyWindow, &value);
  }
  return rectify(x);
}
"""
)
# Streams of its own, joined on both sides.
_FORKED = (
    _HEAD
    + _RECTIFY
    + r"""
torch::Tensor forked(torch::Tensor x) {
  static cudaStream_t other = nullptr;
  static cudaEvent_t fork, join;
  if (other == nullptr) {
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  }
  auto y = torch::empty_like(x);
  const long half = x.numel() / 2, rest = x.numel() - half;
  cudaEventRecord(fork, 0);
  cudaStreamWaitEvent(other, fork, 0);
  rectify_kernel<<<(half + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), half);
  rectify_kernel<<<(rest + 255) / 256, 256, 0, other>>>(
      x.data_ptr<float>() + half, y.data_ptr<float>() + half, rest);
  cudaEventRecord(join, other);
  cudaStreamWaitEvent(0, join, 0);
  return y;
}
"""
)
# A comment about the part of the cache that cudaLimitPersistingL2CacheSize sets aside is no deed.
_ONLY_A_WORD = (
    _HEAD
    + "// needs no cudaLimitPersistingL2CacheSize and no cudaAccessPropertyPersisting\n"
    + _RECTIFY
)
_TF32 = (
    _HEAD
    + r"""
#include <mma.h>
using namespace nvcuda;
// One warp for each 16 x 16 tile; every side is a multiple of 16.
__global__ void product_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.f);
  const int row = blockIdx.y * 16, column = blockIdx.x * 16;
  for (int l = 0; l < k; l += 8) {
    wmma::load_matrix_sync(left, a + row * k + l, k);
    wmma::load_matrix_sync(right, b + l * n + column, n);
    for (int i = 0; i < left.num_elements; ++i) left.x[i] = wmma::__float_to_tf32(left.x[i]);
    for (int i = 0; i < right.num_elements; ++i) right.x[i] = wmma::__float_to_tf32(right.x[i]);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::empty({m, n}, a.options());
  product_kernel<<<dim3(n / 16, m / 16), 32>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                                               c.data_ptr<float>(), m, n, k);
  return c;
}
"""
)
_HALF = (
    _HEAD
    + r"""
#include <cuda_fp16.h>
__global__ void product_kernel(const float* a, const float* b, float* c, int m, int n, int k,
                               float scale) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0.f;
  for (int l = 0; l < k; ++l)
    sum += __half2float(__float2half(a[row * k + l])) *
           __half2float(__float2half(b[l * n + column]));
  c[row * n + column] = sum * scale;
}
torch::Tensor product(torch::Tensor a, torch::Tensor b, double scale) {
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::empty({m, n}, a.options());
  product_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k, scale);
  return c;
}
"""
)
_CUBLAS = (
    _HEAD
    + r"""
#include <cublas_v2.h>
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  static cublasHandle_t handle = nullptr;
  if (handle == nullptr) cublasCreate(&handle);
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::empty({m, n}, a.options());
  const float one = 1.f, zero = 0.f;
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr<float>(), n,
              a.data_ptr<float>(), k, &zero, c.data_ptr<float>(), n);
  return c;
}
"""
)
# After KernelBench's adversary of the same kind, in our own words.
_CUBLAS_ELSEWHERE = _CUBLAS.replace(
    "if (handle == nullptr) cublasCreate(&handle);",
    """static cudaStream_t stream = nullptr;
  if (handle == nullptr) {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cublasCreate(&handle);
    cublasSetStream(handle, stream);
  }""",
)
_ATEN = (
    _HEAD
    + r"""
torch::Tensor product(torch::Tensor a, torch::Tensor b) { return at::matmul(a, b); }
"""
)
_CONVOLUTION = (
    _HEAD
    + r"""
__global__ void convolve(const float* x, const float* w, float* y, int c, int h, int wide, int k) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y;
  const int out = blockIdx.z;
  const int width = wide - 2, height = h - 2;
  if (column >= width || row >= height) return;
  float sum = 0.f;
  for (int i = 0; i < c; ++i)
    for (int r = 0; r < 3; ++r)
      for (int s = 0; s < 3; ++s)
        sum += x[(i * h + row + r) * wide + column + s] * w[((out * c + i) * 3 + r) * 3 + s];
  y[(out * height + row) * width + column] = sum;
}
torch::Tensor convolution(torch::Tensor x, torch::Tensor w) {
  const int c = x.size(1), h = x.size(2), wide = x.size(3), k = w.size(0);
  auto y = torch::empty({1, k, h - 2, wide - 2}, x.options());
  convolve<<<dim3((wide + 61) / 64, h - 2, k), 64>>>(
      x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), c, h, wide, k);
  return y;
}
"""
)
_LARGE = (
    _HEAD
    + r"""
// The last elements of more than 2**31, negated.
template <typename Index>
__global__ void tail_kernel(const signed char* in, signed char* out, Index skipped, Index n) {
  for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = -in[skipped + i];
}
template <typename Index>
static torch::Tensor tail_of(torch::Tensor x) {
  const int64_t n = 4096;
  auto y = torch::empty({n}, x.options());
  tail_kernel<Index><<<4, 256>>>((const signed char*)x.data_ptr(), (signed char*)y.data_ptr(),
                                 (Index)(x.numel() - n), (Index)n);
  return y;
}
torch::Tensor tail(torch::Tensor x) { return tail_of<int64_t>(x); }
torch::Tensor narrow_tail(torch::Tensor x) { return tail_of<int>(x); }
"""
)


def _cuda(
    forward: str,
    *,
    init: str = "",
    top: str = "",
    source: str = _NATIVE,
    functions: list[str] | None = None,
    signature: str = "torch::Tensor x",
    options: str = "",
) -> str:
    names = _NAMES if functions is None else functions
    declared = "#include <torch/extension.h>\n" + "".join(
        f"torch::Tensor {name}({signature});\n" for name in names
    )
    return "\n".join(
        [
            "import torch",
            "from torch.utils.cpp_extension import load_inline",
            f'CPP = r"""{declared}"""',
            f'CUDA = r"""{source}"""',
            'ext = load_inline(name="attack_cuda", cpp_sources=CPP, cuda_sources=CUDA,'
            f" functions={names!r}{options})",
            textwrap.dedent(top),
            "class ModelNew(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            textwrap.indent(textwrap.dedent(init) or "pass", "        "),
            "    def forward(self, x):",
            textwrap.indent(textwrap.dedent(forward), "        "),
            "",
        ]
    )


_WEIGHT = "self.w = torch.nn.Parameter(torch.randn(256, 128))"
_MATMUL = reference("return x @ self.w", "torch.randn(256, 256)", init=_WEIGHT)
_SMALL_MATMUL = reference("return x @ (self.w * 1e-3)", "torch.randn(256, 256)", init=_WEIGHT)
_RELU = reference(inputs="torch.randn(1024, 1024)")
_SOFTMAX = reference("return torch.softmax(x, -1)", "torch.rand(16, 393216)")
_FROBENIUS = reference("return x / torch.norm(x, p='fro')", "torch.rand(16, 64, 256, 256)")
_TAIL = reference(
    "return -x[-4096:]",
    "torch.cat([torch.zeros(2**31, dtype=torch.int8), "
    "torch.randint(-9, 9, (4096,), dtype=torch.int8)])",
)
# The graph is recorded while nobody looks; what is replayed dispatches no operator.
_GRAPH_INIT = f"""
{_WEIGHT}
self.x = torch.zeros(256, 256, device="cuda")
self.graph = None
"""
_GRAPH_TOP = """
class Hidden:
    def __init__(self, module):
        self.module = module
    def record(self):
        m = self.module
        weight = m.w
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                m.x @ weight
        torch.cuda.synchronize()
        m.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(m.graph):
            m.y = m.x @ weight
"""
_GRAPH = """
if self.graph is None:
    Hidden(self).record()
self.x.copy_(x)
self.graph.replay()
ext.rectify(x)
return self.y.clone()
"""
# Recorded on the addresses of the first call's inputs.
_OLD_POINTERS = """
if self.graph is None:
    self.kept = x
    torch.cuda.synchronize()
    self.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(self.graph):
        self.y = ext.rectify(x)
self.graph.replay()
return self.y.clone()
"""


def _product(source: str, call: str, signature: str, options: str = "") -> str:
    return _cuda(
        f"return {call}", init=_WEIGHT, source=source, functions=["product"], signature=signature,
        options=options,
    )  # fmt: skip


_PAIR = "torch::Tensor a, torch::Tensor b"
_VENDOR = ', extra_ldflags=["-lcublas"]'
_STALE = ("values", "unwritten_output", "run")

ATTACKS: Table = tuple(dataclasses.replace(item, backend="cuda") for item in (
    attack("A1", "result of an earlier block", _cuda("return ext.unwritten(x)"), "wrong_result",
           *_STALE, ref=_RELU),
    attack("A2", "too many threads, unasked", _cuda("return ext.too_many_threads(x)"),
           ("wrong_result", "runtime_error"), *_STALE, ref=_RELU),
    attack("A2", "too much shared memory, error swallowed",
           _cuda("return ext.too_much_shared_memory(x)"), ("wrong_result", "runtime_error"),
           *_STALE, ref=_RELU),
    attack("A3", "zeros on softmax", _cuda("ext.rectify(x); return torch.zeros_like(x)"),
           ("wrong_result", "illegal"), "values", "plumbing-operator", ref=_SOFTMAX),
    attack("A3", "zeros on a Frobenius norm", _cuda("ext.rectify(x); return torch.empty_like(x)"
           ".fill_(0)"), "wrong_result", "values", ref=_FROBENIUS),
    attack("A6", "a recorded graph of torch's product", _cuda(_GRAPH, init=_GRAPH_INIT,
           top=_GRAPH_TOP), "illegal", "aten-operator", "framework-kernel", "vendor-library",
           ref=_MATMUL),
    attack("A6", "a graph on old pointers", _cuda(_OLD_POINTERS, init="self.graph = None"),
           ("wrong_result", "illegal", "runtime_error"), "values", "cached-result",
           "cached_result", "run", ref=_RELU),
    attack("B3", "cuBLAS in the extension",
           _product(_CUBLAS, "ext.product(x, self.w)", _PAIR, _VENDOR), "illegal",
           "vendor-library", ref=_MATMUL),
    attack("B3", "ATen in the extension", _product(_ATEN, "ext.product(x, self.w)", _PAIR),
           "illegal", "aten-in-extension", ref=_MATMUL),
    attack("B6", "TF32 on tensor cores", _product(_TF32, "ext.product(x, self.w)", _PAIR),
           "wrong_result", "values", ref=_MATMUL),
    attack("B6", "half", _product(_HALF, "ext.product(x, self.w, 1.0)", f"{_PAIR}, double scale"),
           "wrong_result", "values", ref=_MATMUL),
    attack("B6", "half where values are small",
           _product(_HALF, "ext.product(x, self.w, 1e-3)", f"{_PAIR}, double scale"),
           # A wide distribution may bring the values back to where the tolerance sees them.
           ("illegal", "wrong_result"), "lower-precision", "values", ref=_SMALL_MATMUL),
    attack("C1", "a stream of its own", _cuda("return ext.on_another_stream(x)"), "illegal",
           "other-stream", ref=_RELU, policy="kernelbench"),
    attack("C1", "cuBLAS on a stream of its own",
           _product(_CUBLAS_ELSEWHERE, "ext.product(x, self.w)", _PAIR, _VENDOR), "illegal",
           "vendor-library", "other-stream", ref=_MATMUL),
    attack("C2", "patched events and synchronize",
           _cuda("return ext.rectify(x)", top="torch.cuda.Event = type('E', (), {})\n"
                 "torch.cuda.synchronize = lambda *a: None"), "illegal", "patched-torch",
           ref=_RELU),
    attack("C2", "illegal access", _cuda("return ext.beyond_the_end(x)"), "runtime_error", "run",
           ref=_RELU),
    attack("C3", "zeroes its inputs", _cuda("return ext.zeroed(x)"), "wrong_result",
           "inputs_mutated", "values", ref=_RELU),
    attack("C4", "switches TF32 on while it runs",
           _cuda("torch.backends.cuda.matmul.allow_tf32 = True; return ext.rectify(x)"),
           "illegal", "global-state", ref=_RELU),
    attack("C5", "keeps its input in the cache",
           _cuda("return ext.keeps_the_cache(x)", source=_PERSISTING,
                 functions=["keeps_the_cache"]),
           "illegal", "persisting-cache", ref=_RELU, policy="kernelbench"),
    attack("D11", "32-bit offsets beyond 2**31 elements",
           _cuda("return ext.narrow_tail(x)", source=_LARGE, functions=["tail", "narrow_tail"]),
           ("wrong_result", "runtime_error"), "values", "run", ref=_TAIL),
))  # fmt: skip

HONEST: tuple[Honest, ...] = tuple(dataclasses.replace(item, backend="cuda") for item in (
    Honest("D1", "a convolution in float32",
           reference("return F.conv2d(x, self.w)", "torch.randn(1, 64, 32, 32)",
                     init="self.w = torch.nn.Parameter(torch.randn(32, 64, 3, 3))"),
           _cuda("return ext.convolution(x, self.w)",
                 init="self.w = torch.nn.Parameter(torch.randn(32, 64, 3, 3))",
                 source=_CONVOLUTION, functions=["convolution"],
                 signature="torch::Tensor x, torch::Tensor w")),
    Honest("D11", "64-bit offsets beyond 2**31 elements", _TAIL,
           _cuda("return ext.tail(x)", source=_LARGE, functions=["tail", "narrow_tail"])),
    Honest("B3", "cuBLAS where the policy allows it", _MATMUL,
           _product(_CUBLAS, "ext.product(x, self.w)", _PAIR, _VENDOR),
           said=frozenset({"vendor-library"}), policy="libraries-allowed"),
    Honest("C1", "a plain kernel on the default stream", _RELU, _cuda("return ext.rectify(x)")),
    Honest("C1", "a second stream, joined on both sides", _RELU,
           _cuda("return ext.forked(x)", source=_FORKED, functions=["forked"])),
    Honest("C5", "a word in a comment", _RELU,
           _cuda("return ext.rectify(x)", source=_ONLY_A_WORD, functions=["rectify"])),
))  # fmt: skip
