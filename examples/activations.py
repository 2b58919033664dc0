"""Activation functions that other files of the project import."""

import math

import torch

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def cube(x):
    return x * x * x


# musacoder: x: f32[4096, 1024]
def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """GELU in its tanh approximation, written out."""
    return 0.5 * x * (1.0 + torch.tanh(SQRT_2_OVER_PI * (x + 0.044715 * cube(x))))


# musacoder: x: f32[4096, 1024]
def hard_mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.clamp(x + 2.0, 0.0, 2.0) * 0.5
