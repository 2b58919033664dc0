"""What synth cannot write it declines in one line; what it writes names its origin."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from musacoder_inference.engines.base import Declined, Generated, GenerationRequest
from musacoder_inference.engines.synth.coverage import table
from musacoder_inference.engines.synth.ir import Buffer, load, regroup_strides, try_reshape
from musacoder_inference.registry import UnknownEngine, engine
from musacoder_runtime.children.export import ExportFailure, export
from torch import nn

ROOT = Path(__file__).parents[2]
REFERENCE = """
import torch
import torch.nn as nn

WIDTH = 8

class Model(nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.layers = nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU())

    def forward(self, x):
        return torch.relu(self.layers(x))

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [8]
"""


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


async def _answer(model: nn.Module, *inputs: torch.Tensor, training: bool = False) -> Any:
    graph = export(model, list(inputs), training=training)
    request = GenerationRequest(REFERENCE, "cpu", graph=graph)
    return [event async for event in engine("synth").generate(request)][-1]


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: torch.sort(x).values, "sort"),
        (lambda x: torch.fft.fft(x).real, "fft"),
        (lambda x: x.cummax(0).values, "cummax"),
        (lambda x: F.dropout(x, 0.5, training=True), "dropout"),
        (lambda x: x.median(), "median"),
    ],
)
async def test_declines_by_name_in_one_line(function: Callable[..., Any], named: str) -> None:
    event = await _answer(Function(function), torch.rand(4, 4))
    assert isinstance(event, Declined)
    assert named in event.reason
    assert "\n" not in event.reason
    assert event.reason.endswith("not covered by synth")


async def test_a_missing_graph_is_declined_with_the_reason() -> None:
    request = GenerationRequest(REFERENCE, "cpu", graph_error="it cannot be traced")
    events = [event async for event in engine("synth").generate(request)]
    assert events[-1] == Declined("it cannot be traced")


async def test_the_module_keeps_the_constructor_and_drops_the_reference() -> None:
    namespace: dict[str, Any] = {}
    exec(REFERENCE, namespace)
    event = await _answer(namespace["Model"](8), torch.rand(4, 8))
    assert isinstance(event, Generated)
    assert event.source.startswith("# Written by synth: rules, no model.")
    tree = ast.parse(event.source)
    classes = [n.name for n in tree.body if isinstance(n, ast.ClassDef)]
    assert classes == ["ModelNew"]
    assert "super(ModelNew, self)" in event.source
    assert "WIDTH = 8" in event.source
    assert 'getattr(self.layers, "0").weight.contiguous()' in event.source
    assert "get_inputs" not in event.source


async def test_the_same_request_gives_the_same_text() -> None:
    model = Function(lambda x: torch.softmax(x * 2, -1))
    first, second = [await _answer(model, torch.rand(4, 8)) for _ in range(2)]
    assert first == second


@pytest.mark.parametrize(
    ("backend", "marks"),
    [
        ("cuda", ("cuda_sources=_source", "<<<", "at::cuda::getCurrentCUDAStream()")),
        (
            "musa",
            ("musa_sources=_source", "<<<", "at::musa::getCurrentMUSAStream()", "--offload-arch"),
        ),
    ],
)
async def test_device_sources_come_from_the_same_program(
    backend: Any, marks: tuple[str, ...]
) -> None:
    model = Function(lambda x: torch.softmax(x @ x, -1))
    graph = export(model, [torch.rand(4, 4)], training=False)
    request = GenerationRequest(REFERENCE, backend, graph=graph)
    event = [event async for event in engine("synth").generate(request)][-1]
    assert isinstance(event, Generated)
    ast.parse(event.source)
    assert all(mark in event.source for mark in marks)
    assert "at::matmul" not in event.source


async def test_the_native_form_is_written_when_asked_for() -> None:
    model = Function(lambda x: torch.softmax((x @ x).half(), -1))
    graph = export(model, [torch.rand(4, 4)], training=False)
    request = GenerationRequest(REFERENCE, "cuda", graph=graph)
    event = [e async for e in engine("synth", {"form": "native"}).generate(request)][-1]
    assert isinstance(event, Generated)
    ast.parse(event.source)
    marks = ("from musacoder_native import", 'extern "C" __global__', "float16[4, 4]", "__half")
    assert all(mark in event.source for mark in marks)
    assert not any(word in event.source for word in ("load_inline", "at::", "std::", "<<<"))
    with pytest.raises(UnknownEngine, match="choose load_inline or native"):
        engine("synth", {"form": "ptx"})


async def test_another_backend_is_declined() -> None:
    graph = export(Function(torch.relu), [torch.rand(4, 4)], training=False)
    request = GenerationRequest(REFERENCE, "emulator", graph=graph)
    event = [event async for event in engine("synth").generate(request)][-1]
    assert event == Declined("backend emulator is not covered by synth")


def test_data_dependent_code_is_one_sentence() -> None:
    model = Function(lambda x: x + 1 if x.sum() > 0 else x)
    with pytest.raises(ExportFailure) as failure:
        export(model, [torch.rand(3)], training=False)
    assert "\n" not in str(failure.value)


def test_no_element_of_the_users_tensors_leaves() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.secret = torch.full((5,), 0.123456)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.secret

    graph = export(Holder(), [torch.full((5,), 0.654321)], training=False)
    assert "0.12345" not in str(graph)
    assert "0.65432" not in str(graph)


def test_an_unknown_engine_is_one_sentence() -> None:
    with pytest.raises(UnknownEngine, match="synth"):
        engine("magic")


def test_the_coverage_table_is_current() -> None:
    assert (ROOT / "docs" / "synth-coverage.md").read_text(encoding="utf-8") == table()


def test_a_reshape_is_a_view_only_where_strides_allow() -> None:
    assert regroup_strides((4, 6), (6, 1), (24,)) == (1,)
    assert regroup_strides((4, 6), (1, 4), (24,)) is None
    assert regroup_strides((4, 6), (1, 4), (2, 2, 6)) == (2, 1, 4)
    value = load(Buffer("x", "float32", (4, 6), "input"))
    assert try_reshape(value.permute((1, 0)).expr, (6, 4), (24,)) is None
    flat = try_reshape(value.expr, (4, 6), (8, 3))
    assert flat == load(Buffer("x", "float32", (4, 6), "input")).expr or flat is not None
