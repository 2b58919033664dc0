"""Twenty small References of different kinds, for `musacoder bench compile`."""

from __future__ import annotations

_FORM = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def _reference(body: str, *inputs: str, init: str = "pass") -> str:
    names = ("x", "y", "z")[: len(inputs)]
    return _FORM.format(
        init=f"        {init}",
        names=", ".join(names),
        body=body,
        inputs=", ".join(f"torch.rand({shape})" for shape in inputs),
    )


REFERENCES: dict[str, str] = {
    "relu": _reference("torch.relu(x)", "16, 1024"),
    "gelu": _reference("F.gelu(x)", "16, 1024"),
    "silu times": _reference("F.silu(x) * y", "16, 1024", "16, 1024"),
    "hardswish": _reference("F.hardswish(x)", "16, 1024"),
    "polynomial": _reference("(x * x * 0.5 + x * 2.0 + 1.0) / (x.abs() + 1.0)", "16, 1024"),
    "clamp exp": _reference("torch.exp(torch.clamp(x, -1.0, 1.0))", "16, 1024"),
    "sum": _reference("torch.sum(x, dim=1)", "64, 1024"),
    "mean": _reference("torch.mean(x, dim=-1, keepdim=True)", "64, 1024"),
    "max": _reference("torch.max(x, dim=1)[0]", "64, 1024"),
    "argmax": _reference("torch.argmax(x, dim=1)", "64, 1024"),
    "softmax": _reference("torch.softmax(x, dim=-1)", "64, 1024"),
    "log softmax": _reference("torch.log_softmax(x, dim=1)", "64, 1024"),
    "logsumexp": _reference("torch.logsumexp(x, dim=1)", "64, 1024"),
    "layer norm": _reference("self.n(x)", "64, 256", init="self.n = nn.LayerNorm(256)"),
    "rms norm": _reference(
        "x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)", "64, 256"
    ),
    "group norm": _reference("self.n(x)", "4, 16, 8, 8", init="self.n = nn.GroupNorm(4, 16)"),
    "matmul": _reference("torch.matmul(x, y)", "128, 128", "128, 128"),
    "linear relu": _reference(
        "torch.relu(self.l(x))", "64, 128", init="self.l = nn.Linear(128, 64)"
    ),
    "mse loss": _reference("F.mse_loss(x, y)", "64, 256", "64, 256"),
    "cumsum": _reference("torch.cumsum(x, dim=1)", "64, 256"),
}
