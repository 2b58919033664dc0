"""Runs References beside the user's code that they come from; a program of its own, with torch.

Reads a JSON list of cases from stdin: `source` (the Reference), `user` (the file), `check` (an
expression that must be true), `roots`. Writes a JSON list: "" or what went wrong.
"""

from __future__ import annotations

import json
import sys
import traceback

import torch


def loaded(module: torch.nn.Module, model: torch.nn.Module) -> torch.nn.Module:
    """The user's module with the parameters that the Reference's has too."""
    module.load_state_dict(model.state_dict(), strict=False)
    return module.eval()


def run(case: dict) -> str:  # type: ignore[type-arg]
    before = list(sys.path)
    sys.path[:0] = case["roots"]
    try:
        user = {"__name__": "user"}
        exec(compile(case["user"], "<user>", "exec"), user)
        reference = {"__name__": "reference"}
        exec(compile(case["source"], "<reference>", "exec"), reference)
        torch.manual_seed(0)
        init = reference["get_init_inputs"]()
        model = reference["Model"](*init).eval()
        inputs = reference["get_inputs"]()
        with torch.no_grad():
            out = model(*inputs)
        names = user | {"init": init, "model": model, "inputs": inputs, "out": out, "torch": torch}
        names["same"] = lambda a, b: torch.allclose(a, b, rtol=1e-5, atol=1e-5)
        names["loaded"] = lambda module: loaded(module, model)
        with torch.no_grad():
            return "" if eval(case["check"], names) else f"{case['check']} is false"
    except Exception:
        return traceback.format_exc()
    finally:
        sys.path[:] = before


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([run(case) for case in json.load(sys.stdin)]))
