"""Probe child: runs a Reference once and says what its Workload is, or how it fails.

Messages: `{"stage": name}` before each step, so that a time limit or a crash can be placed, then
one of

    {"inputs": [...], "outputs": {...}, "training": bool, "versions": {...}}
    {"failure": {"stage", "type", "message", "line", "frames", "detail"}}

An input is a leaf of `get_inputs()`: `name`, `dtype`, `shape`, `stride`, `device`, `low`, `high`
(of its finite values) for a tensor, `name`, `dtype` (its type), `value` (its repr) for the rest.
`line` is 1-based in the Reference, None where the failure is on no line of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from musacoder_runtime import failure, reference_module, tensor_tree
from musacoder_runtime.channel import Channel

_VALUE = 200  # characters of a repr

_DOING = {
    "import": "executing the Reference",
    "model": "building Model",
    "inputs": "get_inputs",
    "forward": "Model.forward",
}


def main(channel: Channel, spec: Dict[str, Any]) -> None:
    stage = "import"

    def enter(name: str) -> None:
        nonlocal stage
        stage = name
        channel.send({"stage": name})

    try:
        enter("import")
        module = reference_module.load(spec)
        seed = int(spec.get("seed", reference_module.SEED))
        enter("model")
        model = reference_module.construct(module, seed)
        model.train(bool(spec.get("training", False)))
        enter("inputs")
        given = reference_module.inputs(module, seed)
        # Before forward, which may change its inputs in place.
        described = list(describe_inputs(model, given))
        enter("forward")
        with torch.no_grad():
            output = model(*given)
        structure, leaves = tensor_tree.flatten(output)
        answer = {
            "inputs": described,
            "outputs": {"structure": structure, "leaves": [_output(leaf) for leaf in leaves]},
            "training": model.training,
            "versions": reference_module.versions(),
        }
    except BaseException as error:
        channel.send({"failure": explain(error, stage)})
    else:
        channel.send(answer)


def describe_inputs(model: torch.nn.Module, given: List[Any]) -> Iterator[Dict[str, Any]]:
    names = reference_module.names(model.forward, len(given))
    for index, argument in enumerate(given):
        for leaf_name, leaf in _leaves(names[index], argument):
            yield {"name": leaf_name, **describe_input(leaf)}


def _leaves(name: str, value: Any) -> Iterator[Tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}[{index}]", item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{name}[{key!r}]", item)
    else:
        yield name, value


def describe_input(leaf: Any) -> Dict[str, Any]:
    if not isinstance(leaf, torch.Tensor):
        return {"dtype": type(leaf).__name__, "value": _repr(leaf)}
    low, high = _range(leaf)
    return {
        "dtype": str(leaf.dtype)[len("torch.") :],
        "shape": list(leaf.shape),
        "stride": list(leaf.stride()) if leaf.layout == torch.strided else [],
        "device": str(leaf.device),
        "low": low,
        "high": high,
    }


def _range(tensor: torch.Tensor) -> Tuple[Optional[float], Optional[float]]:
    plain = tensor.layout == torch.strided and not tensor.is_quantized
    if tensor.numel() == 0 or not plain or tensor.is_complex() or tensor.device.type == "meta":
        return None, None
    values = tensor.detach()
    if values.dtype == torch.bool:
        values = values.to(torch.uint8)
    elif values.is_floating_point() and values.element_size() < 2:
        values = values.to(torch.float32)  # float8 has no minimum
    low, high = (float(bound) for bound in torch.aminmax(values))
    if not (math.isfinite(low) and math.isfinite(high)):
        values = values[torch.isfinite(values)]
        if values.numel() == 0:
            return None, None
        low, high = (float(bound) for bound in torch.aminmax(values))
    return low, high


def _output(leaf: Any) -> Dict[str, Any]:
    described = tensor_tree.describe(leaf)
    if described["kind"] == "value":
        described["value"] = _repr(leaf)
    return described


def _repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _VALUE else text[: _VALUE - 3] + "..."


def explain(error: BaseException, stage: str) -> Dict[str, Any]:
    """The failure as data: one sentence in `message`, the traceback in `detail`."""
    report = failure.describe(error)
    lines = [f["line"] for f in report["frames"] if f["file"] == reference_module.FILE]
    return {
        "stage": stage,
        "type": report["type"],
        "message": _sentence(error, report, stage),
        "line": lines[-1] if lines else None,
        "frames": report["frames"],
        "detail": report["traceback"],
    }


def _sentence(error: BaseException, report: Mapping[str, Any], stage: str) -> str:
    if isinstance(error, reference_module.ReferenceFault):
        return str(error)
    text = " ".join(str(report["message"]).split())[:500]
    if isinstance(error, SyntaxError):
        where = report["frames"][-1]["file"] if report["frames"] else reference_module.FILE
        place = "the Reference" if where == reference_module.FILE else where
        return f"{place} is not valid Python: {text}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.split(".")[0]
        if package not in sys.modules:
            return (
                f"the Reference needs the module {package}, which is not installed in "
                f"{sys.executable}; install it with: {sys.executable} -m pip install {package}"
            )
    if isinstance(error, SystemExit):
        return f"{_DOING[stage]} called sys.exit({report['code']!r})"
    return f"{_DOING[stage]} raised {report['type']}" + (f": {text}" if text else "")
