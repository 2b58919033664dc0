"""What synth writes in the native form, described as the verifier reads it and through NVRTC."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from musacoder_inference.engines.synth.cuda.native import load_native
from musacoder_inference.engines.synth.from_graph import read_graph
from musacoder_runtime.children.export import export
from musacoder_runtime.native_form import Function, Launch, described
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.build_request import BuildRequest, SourceText
from musacoder_verifier.lanes import native
from musacoder_verifier.lanes.device import DeviceCompiler
from musacoder_verifier.toolchain import Compiler, cuda_toolkit


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _request(function: Callable[..., Any], *inputs: torch.Tensor) -> BuildRequest:
    program, _ = read_graph(export(_Model(function), list(inputs), training=False))
    taken: dict[str, Any] = {}
    names = {"Function": Function, "Launch": Launch, "load_native": lambda **k: taken.update(k)}
    exec(load_native(program), names)
    launches = json.dumps(described(taken["functions"]))
    return BuildRequest(taken["name"], (SourceText("cuda", taken["source"]),), launches=launches)


def test_scratch_outputs_and_launches_are_described() -> None:
    x = torch.rand(4, 8)
    request = _request(lambda x: (torch.softmax(x, 1), x.argmax(1)), x)
    (function,) = json.loads(request.launches or "").values()
    assert [item["dims"] for item in function["args"]] == [[4, 8]]
    made = [(item["dtype"], item["dims"]) for item in function["made"]]
    assert made[-2:] == [("float32", [["4"], ["8"]]), ("int64", [["4"]])]
    assert function["outputs"] == 2 and len(made) > 2
    assert all(launch["kernel"] in request.sources[0].text for launch in function["launches"])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x @ x.t(), -1).bfloat16(),
        lambda x: F.gelu(x.half()) // 2,
        lambda x: (x.argmin(1), x.cumsum(1), (x > 0).any(1), x.to(torch.int8).amax(0)),
        lambda x: F.max_pool1d(torch.log1p(torch.sigmoid(x.double())), 2),
        lambda x: x[(x[0] > 0.5).long()],
    ],
)
async def test_nvrtc_takes_it(function: Callable[..., Any], tmp_path: Path) -> None:
    toolkit = cuda_toolkit()
    if toolkit is None:
        pytest.skip("nvcc is not installed here")
    host = Compiler("", "gcc", (), "")
    flags = backend("cuda").device_flags
    device = DeviceCompiler(toolkit, host, flags, (), None, toolkit.library_dirs)
    nvrtc = native.find(device)
    if nvrtc is None:
        pytest.skip("NVRTC is not installed here")
    request = _request(function, torch.rand(6, 6))
    result = await native.compile_request(request, nvrtc, device, tmp_path, 60.0)
    assert result.library is not None, result.output
    assert native.table(request, result.library).startswith("1 forward ")
