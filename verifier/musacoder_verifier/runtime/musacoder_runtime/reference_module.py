"""The Reference in a child: its module, its model, its inputs.

A spec holds `source`, `path` (for messages; any name will do), `import_roots` and `training`; the
optional `seed` (42, as KernelBench) makes parameters and inputs.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Mapping

import torch

from musacoder_runtime import module_source, recipes

FILE = "<reference>"
SEED = 42


def load(spec: Mapping[str, Any]) -> ModuleType:
    """Import the Reference; an exception of the user's code passes through, with frames whose
    file is `FILE`, so that its lines can be mapped back to the user's."""
    for root in spec.get("import_roots", ()):
        if root not in sys.path:
            # First, as if the user's own program had been started there.
            sys.path.insert(0, root)
    return module_source.load(spec["source"], FILE, "musacoder_reference")


def build(module: ModuleType, spec: Mapping[str, Any]) -> tuple[torch.nn.Module, list[Any]]:
    """(model in the mode that the spec fixes, inputs of the Workload)."""
    return build_model(module, spec), recipes.make_inputs(module, int(spec.get("seed", SEED)))


def build_model(
    module: ModuleType, spec: Mapping[str, Any], class_name: str = "Model", arguments: Any = None
) -> torch.nn.Module:
    """`Model(*get_init_inputs())`, both under the seed. `arguments` replaces the latter."""
    seed = int(spec.get("seed", SEED))
    initial = recipes.initial_arguments(module, seed) if arguments is None else arguments
    recipes.seed_everything(seed)
    model = getattr(module, class_name)(*initial)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{class_name} is no torch.nn.Module")
    return model.train(bool(spec.get("training", False)))
