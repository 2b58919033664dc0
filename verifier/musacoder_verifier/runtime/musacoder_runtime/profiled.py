"""One call of a verified Candidate, marked for a vendor's profiler that watches this process.

Warmed up before, so that the profiler sees what is timed otherwise. The walls of the sandbox would
keep the profiler out; limits of size and the end with the parent remain.
"""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from typing import Any, Iterator

import torch

from musacoder_runtime import (
    devices,
    extension_loader,
    limits,
    linux,
    module_source,
    precision,
    recipes,
    recorder,
    reference_module,
)
from musacoder_runtime import runner as running

_WARM = 3


def run(path: str) -> None:
    """`path`: a JSON file as `musacoder_verifier.profile.vendor` writes it."""
    linux.die_with_parent(signal.SIGKILL)
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    limits.apply(
        limits.Limits(
            seconds=0.0,
            memory_bytes=spec["memory_bytes"],
            file_bytes=spec["file_bytes"],
            processes="some",
            process_count=64,
            network=False,
        )
    )
    precision.configure(spec["tf32"])
    device = devices.get(spec["device"])
    device.configure(spec["threads"])
    module = reference_module.load(spec["reference"])
    recorder.install(
        lambda request: extension_loader.load(spec["artefacts"][recorder.request_key(request)])
    )
    candidate = module_source.load(spec["source"], spec["path"], "musacoder_candidate")
    model = reference_module.construct(module, reference_module.SEED, candidate.ModelNew)
    training = bool(spec["reference"].get("training", False))
    runner = running.Runner(module, model, device, training)
    inputs = runner.inputs(spec["seed"], recipes.OWN)
    for _ in range(_WARM):
        runner.forward(inputs, spec["seed"])
    device.flush()
    device.synchronize()
    with _watched(device.torch_device), torch.no_grad():
        runner.model(*inputs)
        device.synchronize()


@contextmanager
def _watched(torch_device: str) -> Iterator[None]:
    """Between the marks that profilers started with "not from the start" look for."""
    module: Any = getattr(torch, torch_device.split(":")[0], None)
    marks = getattr(module, "profiler", None)
    start, stop = getattr(marks, "start", None), getattr(marks, "stop", None)
    if start is not None:
        start()
    try:
        yield
    finally:
        if stop is not None:
            stop()
