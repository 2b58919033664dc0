"""How exactly float32 arithmetic of PyTorch's own operators is done.

torch leaves TF32 on for convolutions and off for matrix products. A Reference that computes in TF32
misses 1e-4 by itself, so that an honest float32 kernel fails against it; both sides of a Verdict
therefore compute in full float32, unless published figures are to be reproduced.
"""

from __future__ import annotations

import torch


def configure(tf32: str) -> None:
    """`off`: full float32 everywhere; `default`: as torch leaves it. Touches no device."""
    if tf32 == "off":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
