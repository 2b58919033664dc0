"""One long function, of which a call or some lines become a kernel: put the cursor on an operation,
or select the lines between the blank ones."""

import torch
import torch.nn.functional as F
from torch import nn

GUIDANCE = 7.5
EPS = 1e-5


class Denoiser(nn.Module):
    # musacoder: init: channels=64
    def __init__(self, channels: int, groups: int = 8):
        super().__init__()
        self.groups = groups
        self.norm = nn.GroupNorm(groups, channels)
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.mix = nn.Conv2d(channels, channels, 1)

    # musacoder: x: f32[2, 64, 32, 32], noise: f32[2, 64, 32, 32]
    def forward(self, x, noise, step: int = 10, guided: bool = True):
        # musacoder: hidden: f32[2, 64, 32, 32]
        hidden = F.silu(self.norm(x))

        weight = GUIDANCE if guided else 1.0
        blended = hidden + weight * (noise - hidden)
        blended = blended * torch.rsqrt(blended.pow(2).mean(1, keepdim=True) + EPS)

        out = self.mix(blended) * self.scale
        return x - out / (step + 1)
