"""Kernels written by synth against torch, compiled in one batch per family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import synth_native
import torch
import torch.nn.functional as F
from torch import nn


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@dataclass(frozen=True)
class Case:
    name: str
    model: nn.Module
    inputs: Sequence[Any]
    training: bool = False
    tolerance: float = 1e-4


def r(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + 7)
    return (torch.randn(*shape, generator=generator) * scale).to(dtype)


def i(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(3))


def f(name: str, function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-4) -> Case:
    return Case(name, Function(function), inputs, tolerance=tolerance)


SPECIAL = torch.tensor(
    [
        0.0,
        -0.0,
        1e-30,
        -1e-30,
        88.7,
        89.5,
        -103.9,
        -110.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        1e30,
        -1e30,
        0.5,
    ]
)
WIDE = torch.cat([SPECIAL, torch.linspace(-30, 30, 999)])

POINTWISE = [
    f("exponential", torch.exp, WIDE),
    f("expm1", torch.expm1, WIDE),
    f("logarithm", torch.log, WIDE.abs()),
    f("log1p", torch.log1p, torch.cat([WIDE.abs(), torch.tensor([-0.5, -1.0, -0.999])])),
    f("tanh", torch.tanh, WIDE),
    f("erf", torch.erf, WIDE),
    f("sigmoid", torch.sigmoid, WIDE),
    f("gelu", F.gelu, r(3, 5, 7, scale=4)),
    f("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), r(3, 5, 7, scale=4)),
    f("chain", lambda x, y: F.silu(x * 2 + y) - F.elu(y) * F.softplus(x), r(33, 17), r(17)),
    f(
        "activations",
        lambda x: (
            F.selu(x)
            + F.hardswish(x)
            + F.mish(x)
            + F.relu6(x)
            + F.celu(x)
            + F.softsign(x)
            + F.hardsigmoid(x)
            + F.leaky_relu(x)
            + F.logsigmoid(x)
        ),
        r(999, scale=5),
    ),
    f("broadcast", lambda x, y, z: (x + y) * z, r(4, 1, 5), r(3, 1), r(1)),
    f("transposed", lambda x, y: x.t() + y, r(13, 29), r(29, 13)),
    f(
        "comparisons",
        lambda x, y: torch.where((x > y) & (x != 0) | (y < -1), x.clamp(-0.5, 0.7), y.clamp(min=0)),
        r(77),
        r(77),
    ),
    f(
        "halves",
        lambda x, y: F.gelu(x) * y + 1,
        r(65, 3, dtype=torch.bfloat16),
        r(3, dtype=torch.bfloat16),
        tolerance=2e-2,
    ),
    f("float16", lambda x: torch.tanh(x) / 3, r(65, dtype=torch.float16), tolerance=2e-3),
    f(
        "doubles",
        lambda x: torch.exp(-x * x).sqrt() + torch.erf(x),
        r(65, dtype=torch.float64),
        tolerance=1e-12,
    ),
    f(
        "integers",
        lambda x, y: (x * 3 - y).float() / 2 + (x // y) + (x % y),
        i(-20, 20, 50),
        i(1, 7, 50),
    ),
    f("relu_nan", torch.relu, WIDE),
    f("powers", lambda x: x**2 + x**3 - x.abs() ** 0.5 + x.abs() ** 1.7 + 2.0**x, r(40)),
    f("empty", lambda x: torch.sin(x) + 1, r(0, 4)),
    f("scalar", lambda x: x * 3, torch.tensor(2.0)),
    f(
        "rounding",
        lambda x: torch.round(x) + torch.floor(x) * torch.ceil(x) - torch.trunc(x) + torch.sign(x),
        r(100, scale=3),
    ),
]

REDUCTIONS = [
    f("softmax", lambda x: torch.softmax(x, -1), r(5, 333, scale=30)),
    f("softmax_middle", lambda x: torch.softmax(x, 1), r(3, 7, 41)),
    f("log_softmax", lambda x: torch.log_softmax(x, 0), r(50, 6)),
    f("long_sum", lambda x: x.sum(), r(300_001).abs(), tolerance=1e-6),
    f("mean_of_two", lambda x: x.mean((0, 2)), r(4, 9, 30)),
    f("keepdim", lambda x: x / x.norm(p=2, dim=1, keepdim=True), r(6, 130)),
    f("whole_norm", lambda x: x / torch.norm(x), r(60, 130)),
    f("l1_inf", lambda x: (x.norm(p=1, dim=-1), x.norm(p=float("inf"), dim=0)), r(8, 31)),
    f(
        "extremes",
        lambda x: (x.max(1).values, x.min(0).values, x.amax(), x.max(1).indices, x.min(0).indices),
        r(37, 300),
    ),
    f("arguments", lambda x: (x.argmax(), x.argmin(0), x.argmax(-1)), r(20, 523)),
    f(
        "nan_extremes",
        lambda x: (x.amax(0), x.argmax(0), x.amin(1), x.argmin(1)),
        torch.stack([WIDE, WIDE.flip(0)]),
    ),
    f("ties", lambda x: (x.argmax(1), x.argmin(0)), i(0, 3, 30, 700).float()),
    f("infinite_argmax", lambda x: x.argmax(1), torch.full((3, 9), float("-inf"))),
    f("product", lambda x: x.prod(1), r(9, 6)),
    f("any_all", lambda x: ((x > 2).any(1), (x > -3).all(0)), r(20, 30)),
    f(
        "spread",
        lambda x: (x.var(1), x.std(0), x.var((0, 1), correction=0)),
        r(20, 30) + 1000,
        tolerance=1e-3,
    ),
    f("logsumexp", lambda x: torch.logsumexp(x, 1), r(9, 200, scale=50)),
    f("cumsum", lambda x: torch.cumsum(x, 1), r(9, 2500)),
    f("cumsum_reversed", lambda x: torch.cumsum(x.flip(1), 1).flip(1), r(9, 77)),
    f(
        "cumsum_exclusive",
        lambda x: torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, :-1], 1)), 1),
        r(9, 77),
    ),
    f("cumsum_masked", lambda x, m: torch.cumsum(x * m, 1) * 2 + 1, r(9, 77), r(9, 77) > 0),
    f("cumsum_first", lambda x: torch.cumsum(x, 0), r(130, 9)),
    f("cumprod", lambda x: torch.cumprod(x, 1), r(5, 20)),
    f("sum_of_integers", lambda x: (x.sum(), x.sum(1), x.cumsum(0)), i(-5, 5, 20, 30)),
    f("sum_middle_long", lambda x: x.sum(1), r(2, 1500, 5)),
    f("two_results", lambda x: (x - x.mean(1, keepdim=True), x.mean(1)), r(8, 20)),
    f("size_one", lambda x: torch.softmax(x, 1) + x.sum(0), r(1, 1)),
    f("half_sum", lambda x: x.sum(-1), r(4, 3000, dtype=torch.float16).abs(), tolerance=2e-3),
    f("empty_sum", lambda x: x.sum(0), r(0, 3)),
    f("transposed_sum", lambda x: x.t().sum(1), r(40, 50)),
]

NORMS = [
    Case("layer_norm", nn.LayerNorm((5, 9)), [r(4, 5, 9)]),
    Case("rms_norm", nn.RMSNorm(33), [r(4, 33)]),
    Case("group_norm", nn.GroupNorm(3, 12), [r(2, 12, 5, 7)]),
    Case("instance_norm", nn.InstanceNorm2d(6, affine=True), [r(2, 6, 5, 7)]),
    Case("batch_norm_train", nn.BatchNorm2d(6), [r(3, 6, 5, 7)], training=True),
    Case("batch_norm_eval", nn.BatchNorm1d(6), [r(3, 6)]),
    f("cross_entropy", F.cross_entropy, r(30, 11), i(0, 11, 30)),
    f(
        "kl",
        lambda p, q: F.kl_div(p.log_softmax(1), q.softmax(1), reduction="batchmean"),
        r(20, 9),
        r(20, 9),
    ),
    f(
        "losses",
        lambda x, y: (
            F.mse_loss(x, y),
            F.l1_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.huber_loss(x, y, delta=0.3),
        ),
        r(20, 9),
        r(9, 20).t(),
    ),
    f("bce", lambda x, y: F.binary_cross_entropy_with_logits(x, y), r(50), r(50).sigmoid()),
    f(
        "triplet",
        lambda a, p, n: F.triplet_margin_loss(a, p, n),
        r(9, 20),
        r(9, 20) * 2,
        r(9, 20) + 1,
    ),
    f("cosine", lambda a, b: F.cosine_similarity(a, b), r(9, 20), r(9, 20) + 1),
    f("hinge", lambda x, y: torch.mean(torch.clamp(1 - x * y, min=0)), r(20, 30), r(30)),
    f("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), -r(2, 3, 11, 13).abs()),
    f("max_pool_dilated", lambda x: F.max_pool1d(x, 3, 2, 1, dilation=2), r(2, 3, 40)),
    f("max_pool_3d", lambda x: F.max_pool3d(x, 2, padding=1), r(1, 2, 6, 7, 8)),
    f(
        "average_pool",
        lambda x: F.avg_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        r(2, 3, 11, 13),
    ),
    f("average_pool_ceil", lambda x: F.avg_pool1d(x, 3, 2, ceil_mode=True), r(2, 3, 12)),
    f("average_pool_3d", lambda x: F.avg_pool3d(x, 2), r(1, 2, 6, 7, 8)),
    f("adaptive_pool", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), r(2, 3, 9, 8)),
]

PRODUCTS = [
    f("square", torch.matmul, r(64, 64), r(64, 64)),
    f("odd", torch.matmul, r(37, 301), r(301, 53), tolerance=1e-3),
    f("epilogue", lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2, r(30, 40), r(50, 40), r(50)),
    f(
        "epilogue_3d",
        lambda x, w, b: F.relu(F.linear(x, w, b)) + x[..., :1],
        r(3, 30, 40),
        r(50, 40),
        r(50),
    ),
    f("vector", torch.mv, r(30, 700), r(700)),
    f("batched", lambda a, b: torch.bmm(a, b.transpose(1, 2)), r(3, 20, 30), r(3, 17, 30)),
    f("transposes", lambda a, b: a.t() @ b.t(), r(30, 20), r(45, 30)),
    f("triangular", lambda a, b: torch.tril(a.tril() @ b.tril()), r(30, 30), r(30, 30)),
    f("diagonal", lambda a, b: torch.diag(a) @ b, r(30), r(30, 20)),
    f("four_dims", lambda a, b: torch.einsum("bijl,lk->bijk", a, b), r(2, 3, 4, 25), r(25, 30)),
    f(
        "attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        r(2, 3, 10, 16),
        r(2, 3, 12, 16),
        r(2, 3, 12, 16),
    ),
    f(
        "double_product",
        torch.matmul,
        r(20, 30, dtype=torch.float64),
        r(30, 20, dtype=torch.float64),
        tolerance=1e-12,
    ),
    f(
        "half_product",
        torch.matmul,
        r(20, 30, dtype=torch.bfloat16),
        r(30, 20, dtype=torch.bfloat16),
        tolerance=3e-2,
    ),
    f("tiny", torch.matmul, r(3, 1), r(1, 4)),
    f("wide_prologue", lambda a, b: torch.exp(a) @ (b * 2), r(10, 20), r(20, 30)),
    Case("conv1d", nn.Conv1d(6, 8, 3, stride=2, padding=1, dilation=2), [r(2, 6, 31)]),
    Case("conv2d", nn.Conv2d(3, 8, (3, 5), padding=(1, 2)), [r(2, 3, 14, 15)]),
    Case("conv2d_groups", nn.Conv2d(6, 12, 3, groups=2, stride=2), [r(2, 6, 14, 15)]),
    Case("conv_depthwise", nn.Conv2d(6, 6, 3, groups=6, padding=1), [r(2, 6, 14, 15)]),
    Case("conv3d", nn.Conv3d(3, 4, 3), [r(1, 3, 6, 7, 8)]),
    Case(
        "conv_transposed",
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        [r(2, 4, 7, 6)],
    ),
    Case("conv_transposed_1d", nn.ConvTranspose1d(4, 6, 5, dilation=2), [r(2, 4, 17)]),
]

LAYOUT = [
    f("permute", lambda x: x.permute(2, 0, 1).contiguous(), r(4, 5, 6)),
    f("cat", lambda x, y: torch.cat([x, y * 2, x[:, :1]], 1), r(4, 5), r(4, 3)),
    f("stack", lambda x, y: torch.stack([x, y], -1), r(4, 5), r(4, 5)),
    f("slices", lambda x: x[1:, ::2] + x[:-1, 1::2], r(6, 8)),
    f("pad", lambda x: F.pad(x, (1, 2, 0, 3), value=2.5), r(4, 5)),
    f("roll", lambda x: torch.roll(x, (2, -1), (0, 1)), r(6, 8)),
    f("reflect", lambda x: F.pad(x, (2, 1), mode="reflect"), r(2, 3, 8)),
    f("reshape", lambda x: (x.transpose(1, 2).reshape(2, 12) + 1).view(4, 6), r(2, 3, 4)),
    f("repeat", lambda x: x.repeat(2, 3), r(2, 3)),
    f("triu", lambda x: torch.triu(x, 1) + torch.tril(x, -1), r(7, 9)),
    f("embedding", lambda w, n: F.embedding(n, w) * 2, r(30, 8), i(0, 30, 4, 5)),
    f("gather", lambda x, n: torch.gather(x, 1, n), r(6, 9), i(0, 9, 6, 4)),
    f("index_select", lambda x, n: x.index_select(1, n), r(6, 9), i(0, 9, 5)),
    f("index", lambda x, n: x[:, n - 3], r(6, 9), i(0, 9, 5)),
    f("arange", lambda x: x + torch.arange(5) * torch.arange(0, 1, 0.2), r(3, 5)),
    f("nested", lambda x: {"a": x + 1, "b": [x * 2, (x.sum(),)]}, r(3, 5)),
    f("same_twice", lambda x: (x, x), r(3)),
    f("noncontiguous", lambda x: x * 2, r(6, 8).t()[::2]),
]


@pytest.mark.parametrize(
    "cases",
    [POINTWISE, REDUCTIONS, NORMS, PRODUCTS, LAYOUT],
    ids=["pointwise", "reductions", "norms", "products", "layout"],
)
def test_kernels_agree_with_torch(cases: list[Case], tmp_path: Path) -> None:
    written = [
        synth_native.write_source(case.name, case.model, case.inputs, case.training)
        for case in cases
    ]
    library = synth_native.compile_batch(written, tmp_path)
    problems = [
        p for case, item in zip(cases, written, strict=True) for p in _compare(library, case, item)
    ]
    assert problems == []


def _compare(library: Any, case: Case, item: synth_native.Written) -> list[str]:
    got = synth_native.call(library, item, case.model, case.inputs)
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(case.model(*case.inputs))
    buffers = dict(case.model.named_buffers())
    outputs = iter(expected)
    problems = []
    for result, (kind, target) in zip(got, item.described, strict=True):
        wanted = next(outputs) if kind == "output" else buffers[str(target)]
        if result.shape != wanted.shape or result.dtype != wanted.dtype:
            problems.append(
                f"{case.name}: {result.shape} {result.dtype}, not {wanted.shape} {wanted.dtype}"
            )
        elif not torch.allclose(
            result.double(),
            wanted.double(),
            atol=case.tolerance,
            rtol=case.tolerance,
            equal_nan=True,
        ):
            worst = (result.double() - wanted.double()).abs().max().item()
            problems.append(f"{case.name}: off by {worst}")
    return problems
