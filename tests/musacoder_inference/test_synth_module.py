"""The Python around the kernels: whose constructor it keeps, and under which names."""

from __future__ import annotations

import ast

import pytest
from musacoder_inference.engines.synth import module
from musacoder_inference.engines.synth.ir import NotCovered

ALIASED = """
from __future__ import annotations
import math
import torch
from torch import nn
WIDTH = 8
UNUSED = 9
class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH))
        self.reset()
    def reset(self):
        nn.init.constant_(self.weight, math.pi)
    def helper(self, x):
        return x
    def forward(self, x):
        return self.helper(x) * self.weight
Model = Net
"""


def parts(source: str) -> tuple[ast.ClassDef, list[str], list[str], list[str]]:
    tree = ast.parse(source)
    model = module._model_class(tree)
    lines = source.splitlines()
    imports, kept = module._kept_statements(tree, model, lines)
    return model, imports, kept, module._class(model, lines, ["    def forward(self, x): ..."])


def test_model_may_be_an_alias() -> None:
    assert parts(ALIASED)[0].name == "Net"
    with pytest.raises(NotCovered, match="not defined in this file"):
        module._model_class(ast.parse("from other import Net\nModel = Net\n"))


def test_the_constructor_keeps_what_it_needs_and_nothing_else() -> None:
    _, imports, kept, body = parts(ALIASED)
    assert [line for line in kept if line] == ["WIDTH = 8"]
    assert imports[0] == "from __future__ import annotations" and "import math" in imports
    text = "\n".join(body)
    assert "super(ModelNew, self)" in text
    assert "def reset(self)" in text and "def helper" not in text


def test_the_module_runs() -> None:
    import torch

    _, imports, kept, body = parts(ALIASED)
    names: dict[str, object] = {}
    exec("\n".join([*imports, *kept, *body]), names)
    made = names["ModelNew"]()  # type: ignore[operator]
    assert torch.allclose(made.weight, torch.full((8,), torch.pi))
