"""The Reference in a child: its module, its model, its inputs.

A spec holds `source`, `path` (the user's file, which the code sees as `__file__` and finds data
beside; may be absent), `import_roots` and `training`; the optional `seed` (42, as KernelBench)
makes parameters and inputs. Frames of the Reference in tracebacks have the file `FILE`, so that
their lines can be mapped back to the user's.
"""

from __future__ import annotations

import platform
import sys
from types import ModuleType
from typing import Any, Callable, Mapping

import torch

from musacoder_runtime import module_source, recipes, reference_inputs
from musacoder_runtime.reference_inputs import ReferenceFault, names

__all__ = [
    "FILE", "SEED", "ReferenceFault", "build", "construct", "initial_arguments", "inputs", "load",
    "names", "unsteady", "versions",
]  # fmt: skip

FILE = "<reference>"
SEED = 42


def load(spec: Mapping[str, Any]) -> ModuleType:
    """Import the Reference; an exception of the user's code passes through. Raises ReferenceFault
    where `Model` or `get_inputs` is missing."""
    for root in reversed(list(spec.get("import_roots") or ())):
        if root not in sys.path:
            # First, as if the user's own program had been started there.
            sys.path.insert(0, root)
    path = spec.get("path")
    sys.argv = [path or FILE]
    module = module_source.load(spec["source"], FILE, "musacoder_reference", file=path)
    if not isinstance(getattr(module, "Model", None), type):
        raise ReferenceFault("the Reference defines no class Model")
    if not callable(getattr(module, "get_inputs", None)):
        raise ReferenceFault("the Reference defines no function get_inputs")
    return module


def build(module: ModuleType, spec: Mapping[str, Any]) -> tuple[torch.nn.Module, list[Any]]:
    """(model in the mode that the spec fixes, inputs of the Workload)."""
    seed = int(spec.get("seed", SEED))
    model = construct(module, seed)
    return model.train(bool(spec.get("training", False))), inputs(module, seed)


def initial_arguments(module: ModuleType, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """(positional, keyword) arguments as `get_init_inputs` returns them under `seed`, a list or a
    dict; an absent function means no arguments."""
    recipes.seed_everything(seed)
    maker = getattr(module, "get_init_inputs", None)
    return reference_inputs.initial(maker() if maker is not None else [])


def construct(
    module: ModuleType, seed: int, model_class: Callable[..., Any] | None = None
) -> torch.nn.Module:
    """`Model(*get_init_inputs())`, or `model_class` instead of Model, both calls under `seed`."""
    positional, keywords = initial_arguments(module, seed)
    recipes.seed_everything(seed)
    made = model_class or module.Model
    model = made(*positional, **keywords)
    if not isinstance(model, torch.nn.Module):
        raise ReferenceFault(f"{getattr(made, '__name__', 'Model')} is no torch.nn.Module")
    return model


def inputs(module: ModuleType, seed: int, distribution: str = recipes.OWN) -> list[Any]:
    """`get_inputs()` under `seed`, with the values of `distribution` (see `recipes`), as
    positional arguments of `Model.forward` whatever container they came in."""
    recipes.seed_everything(seed)
    given = reference_inputs.positional(module, module.get_inputs())
    return recipes.transform(given, distribution, seed)


def unsteady(training: bool, same_under_same_seed: bool) -> ReferenceFault:
    """Why no kernel can be compared with a Model whose result is not that of its inputs alone."""
    if same_under_same_seed:
        mode = "train" if training else "eval"
        return ReferenceFault(
            f"Model.forward draws random numbers in {mode} mode (dropout?), so no kernel can "
            "be compared with it"
        )
    return ReferenceFault(
        "Model.forward gives different results for the same inputs: it keeps state between "
        "calls or is not deterministic"
    )


def versions() -> dict[str, str]:
    """What this interpreter and its torch are, for a Verdict's `versions`."""
    return {"python": platform.python_version(), "torch": str(torch.__version__)}
