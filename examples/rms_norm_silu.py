"""RMS norm and SiLU gate of a language model's feed-forward input, in KernelBench's convention.

Eager PyTorch reads and writes the activations once per operation; one kernel reads them once.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Normalises the rows of `x` by their root mean square, then gates them with SiLU."""

    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        rms = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return x * rms * self.weight * F.silu(gate)


rows = 1024
features = 2048


def get_inputs():
    return [torch.randn(rows, features), torch.randn(rows, features)]


def get_init_inputs():
    return [features]
