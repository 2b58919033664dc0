"""Baseline child: how fast torch.compile makes the Reference, mode by mode, against eager.

It writes its compiled code and starts a compiler, so it has a wider sandbox than the children that
judge, and its own time limit. For each mode it sends `{"mode", "compiled": true}`, waits for a
message that it may measure, and sends `{"mode", "eager_ns": [...], "compiled_ns": [...]}`, or
instead of either `{"mode", "failure"}`; a mode that never ends costs only itself. Then it sends
`{"done": true}`.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from musacoder_runtime import (
    devices,
    failure,
    judge,
    precision,
    recipes,
    reference_module,
    tensor_tree,
)
from musacoder_runtime import runner as running
from musacoder_runtime.channel import Channel

_MOST_CALLS = 256


def main(channel: Channel, spec: dict[str, Any]) -> None:
    """`spec`: `reference`, `device`, `threads`, `modes`, `cache` (a folder), `samples`, `seed`,
    `tf32`."""
    _keep_in(spec["cache"])
    # One process that compiles: a pool would outlive its use and idle beside the measurement.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    precision.configure(spec["tf32"])
    device = devices.get(spec["device"])
    device.configure(spec["threads"])
    module = reference_module.load(spec["reference"])
    training = bool(spec["reference"].get("training", False))
    model = reference_module.construct(module, reference_module.SEED)
    eager = running.Runner(module, model, device, training)
    one = running.calibrate(eager, spec["seed"])
    calls = min(_MOST_CALLS, max(1, int(2.0 * device.sample_ns / max(one.device, 1.0))))
    hold = min(running.HOLD * one.host, running.MOST_HOLD_NS)
    for mode in spec["modes"]:
        answer: dict[str, Any] = {"mode": mode, "failure": None}
        try:
            torch._dynamo.reset()
            compiled = running.Runner(module, model, device, training)
            compiled.model = torch.compile(model, mode=mode)  # type: ignore[assignment]
            _check(eager, compiled)
            channel.send({"mode": mode, "compiled": True})
            if channel.receive() is None:
                return
            answer.update(_measure(eager, compiled, spec, calls, hold))
        except Exception as error:
            described = failure.describe(error)
            last = " ".join(described["message"].split())[:300]
            answer["failure"] = f"{described['type']}: {last}"
        channel.send(answer)
    channel.send({"done": True})


# Whoever compiles keeps a cache, by default in the home folder. The home itself stays what it is:
# the Reference may read there.
_CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "PYTORCH_KERNEL_CACHE_PATH": "torch",
    "TRITON_CACHE_DIR": "triton",
    "TRITON_DUMP_DIR": "triton-dump",
    "TRITON_OVERRIDE_DIR": "triton-override",
    "TRITON_HOME": "home",
    "CUDA_CACHE_PATH": "driver",
}


def _keep_in(folder: str) -> None:
    """Everything that is compiled goes to `folder`, which this child may write."""
    for variable, name in _CACHES.items():
        place = os.path.join(folder, name)
        os.makedirs(place, exist_ok=True)
        os.environ[variable] = place


def _check(eager: running.Runner, compiled: running.Runner) -> None:
    """Compile by calling, and see that it computes the same."""
    inputs = eager.inputs(reference_module.SEED, recipes.OWN)
    expected = tensor_tree.flatten(eager.forward(recipes.clone(inputs), 0))
    actual = tensor_tree.flatten(compiled.forward(recipes.clone(inputs), 0))
    if not judge.compare_trees(actual, expected).passes:
        raise ValueError("the compiled Reference gives other results than the eager one")


def _measure(
    eager: running.Runner,
    compiled: running.Runner,
    spec: dict[str, Any],
    calls: int,
    hold: float,
) -> dict[str, Any]:
    times: dict[str, list[float]] = {"eager_ns": [], "compiled_ns": []}
    for index in range(spec["samples"] + 1):
        for name, runner in (("eager_ns", eager), ("compiled_ns", compiled)):
            runner.prepare(spec["seed"] + index, calls)
            runner.cool()
            spent = runner.sample(calls, hold)
            if index:  # the first one warms up
                times[name].append(spent.device)
    return times
