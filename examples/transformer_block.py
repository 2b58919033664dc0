"""Modules of an ordinary project. The comments that begin with `musacoder` give the Workload."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from activations import gelu_tanh
from torch import Tensor, nn


# musacoder: init: dim=256, hidden=1024
class GatedMLP(nn.Module):
    """Feed-forward half of a transformer block."""

    def __init__(self, dim: int, hidden: int, bias: bool = True):
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.gate = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        # musacoder: x: f32[B, T, 256], B=4, T=64
        return self.down(gelu_tanh(self.gate(x)) * self.up(x))


# musacoder: q: f32[B, H, T, D], k: f32[B, H, T, D], B=2, H=4, T=128, D=64
# musacoder: mask: bool[T, T]
def attention_scores(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Probabilities of scaled dot-product attention."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    return torch.softmax(scores, dim=-1)


class Block(nn.Module):
    """Attention and feed-forward with residuals. No comment says how large its inputs are, so its
    lens asks for them."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.mlp = GatedMLP(dim, 4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        qkv = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = attention_scores(q, k) @ v
        x = x + mixed.transpose(1, 2).reshape(b, t, d)
        return x + self.mlp(x)


# musacoder: logits: f32[512, 8192], labels: i64[512] < 8192, smoothing=0.1
def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross entropy with label smoothing."""
    log_p = F.log_softmax(logits, dim=-1)
    picked = log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (-(1.0 - smoothing) * picked - smoothing * log_p.mean(dim=-1)).mean()
