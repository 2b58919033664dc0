"""Candidates in the native form."""

from __future__ import annotations

REFERENCE = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0, x.sum(dim=1)

def get_inputs():
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""

# The kernels stand from line 5 on.
CANDIDATE = """\
import torch
from musacoder_native import Function, Launch, load_native

SOURCE = r'''
extern "C" __global__ void rectify(const float* x, float* y, float by, long long n) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] > 0.f ? x[i] * by : 0.f;
}
extern "C" __global__ void row_sum(const float* x, float* y, int columns) {
  extern __shared__ float part[];
  float sum = 0.f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
'''

kernels = load_native(
    name="both",
    source=SOURCE,
    functions={
        "both": Function(
            args=["x: float32[rows, columns]", "by: float"],
            outputs=["y: float32[rows, columns]", "sums: float32[rows]"],
            launches=[
                Launch("rectify", args=["x", "y", "by", "rows * columns"],
                       grid="ceil_div(rows * columns, 256)", block=256),
                Launch("row_sum", args=["x", "sums", "columns"],
                       grid="rows", block=128, shared="4 * 128"),
            ],
        )
    },
)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return kernels.both(x, 2.0)
"""
