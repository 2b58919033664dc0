"""The Reference in a child: its module, its model, its inputs.

A spec holds `source`, `import_roots` and `training`; the optional `seed` (42, as KernelBench) makes
parameters and inputs. Frames of the Reference in tracebacks have the file `FILE`, so that their
lines can be mapped back to the user's.
"""

from __future__ import annotations

import inspect
import platform
import sys
from types import ModuleType
from typing import Any, Callable, Mapping

import torch

from musacoder_runtime import module_source, recipes

FILE = "<reference>"
SEED = 42


class ReferenceFault(Exception):  # noqa: N818
    """The Reference is not what the convention asks for; one sentence for the user."""


def load(spec: Mapping[str, Any]) -> ModuleType:
    """Import the Reference; an exception of the user's code passes through."""
    for root in reversed(list(spec.get("import_roots", ()))):
        if root not in sys.path:
            # First, as if the user's own program had been started there.
            sys.path.insert(0, root)
    module = module_source.load(spec["source"], FILE, "musacoder_reference")
    for name in ("Model", "get_inputs"):
        if not callable(getattr(module, name, None)):
            raise ReferenceFault(f"the Reference defines no {name}")
    return module


def build(module: ModuleType, spec: Mapping[str, Any]) -> tuple[torch.nn.Module, list[Any]]:
    """(model in the mode that the spec fixes, inputs of the Workload)."""
    seed = int(spec.get("seed", SEED))
    model = construct(module, seed)
    return model.train(bool(spec.get("training", False))), inputs(module, seed)


def initial_arguments(module: ModuleType, seed: int) -> list[Any]:
    """What `get_init_inputs` returns under `seed`; an absent function means no arguments."""
    recipes.seed_everything(seed)
    maker = getattr(module, "get_init_inputs", None)
    arguments = maker() if maker is not None else []
    if not isinstance(arguments, (list, tuple)):
        kind = type(arguments).__name__
        raise ReferenceFault(f"get_init_inputs returned a {kind}, it must return a list")
    return list(arguments)


def construct(
    module: ModuleType, seed: int, model_class: Callable[..., Any] | None = None
) -> torch.nn.Module:
    """`Model(*get_init_inputs())`, or `model_class` instead of Model, both calls under `seed`."""
    arguments = initial_arguments(module, seed)
    recipes.seed_everything(seed)
    made = model_class or module.Model
    model = made(*arguments)
    if not isinstance(model, torch.nn.Module):
        raise ReferenceFault(f"{getattr(made, '__name__', 'Model')} is no torch.nn.Module")
    return model


def inputs(module: ModuleType, seed: int, distribution: str = recipes.OWN) -> list[Any]:
    """`get_inputs()` under `seed`, with the values of `distribution` (see `recipes`)."""
    recipes.seed_everything(seed)
    given = module.get_inputs()
    if not isinstance(given, (list, tuple)):
        kind = type(given).__name__
        raise ReferenceFault(f"get_inputs returned a {kind}, it must return a list")
    return recipes.transform(list(given), distribution, seed)


def names(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the first `count` positional parameters of `function`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    found: list[str] = []
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}{index}" for index in range(count - len(found))]
        elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found.append(parameter.name)
    return [*found, *(f"input{index}" for index in range(len(found), count))][:count]


def versions() -> dict[str, str]:
    """What this interpreter and its torch are, for a Verdict's `versions`."""
    return {"python": platform.python_version(), "torch": str(torch.__version__)}
