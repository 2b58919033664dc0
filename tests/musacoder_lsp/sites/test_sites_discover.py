"""Which pieces of a file are Sites, and which are not."""

from __future__ import annotations

import pytest
from site_markers import HEADER, names

from musacoder_lsp.sites import find_sites

MODULE = """
class Net(nn.Module):
    def forward(self, x):
        return F.relu(x) + 1
"""


@pytest.mark.parametrize(
    "imports, expression",
    [
        ("import torch.nn.functional as F", "F.softmax(x, -1)"),
        ("from torch.nn import functional as fn", "fn.softmax(x, -1)"),
        ("import torch as t", "t.softmax(x, -1)"),
        ("import torch as t", "t.nn.functional.softmax(x, -1)"),
        ("from torch import softmax as soft", "soft(x, -1)"),
        ("from torch.nn.functional import softmax", "softmax(x, -1)"),
        ("from torch.nn.functional import *", "softmax(x, -1)"),
        ("import torch\nsoft = torch.softmax", "soft(x, -1)"),
        ("import torch.special", "torch.special.softmax(x, -1)"),
        ("try:\n    import torch as t\nexcept ImportError:\n    t = t", "x.softmax(-1)"),
    ],
)
def test_aliases_are_resolved(imports: str, expression: str) -> None:
    (site,) = find_sites(f"{imports}\ndef f(x):\n    return {expression}\n")
    assert (site.kind, site.name, site.operations) == ("function", "f", ("softmax",))


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as F\ndef f(x):\n    return F.softmax(x, -1)\n",
        "import torch.nn.functional as F\nF = make()\ndef f(x):\n    return F.softmax(x)\n",
        "import torch\ndef f(torch, x):\n    return torch.sum(x, -1)\n",
        "import torch\ndef f(x):\n    import numpy as torch\n    return torch.sum(x, -1)\n",
        "from .torch import softmax\ndef f(x):\n    return softmax(x, -1)\n",
    ],
)
def test_shadowed_names_are_not_torch(text: str) -> None:
    assert names(text) == []


def test_local_import() -> None:
    text = "def f(x):\n    from torch.nn import functional as F\n    return F.gelu(x)\n"
    assert names(text) == ["function f"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 1\n",
        "import torch\n",
        "class A:\n    def f(self, x):\n        return x + 1\n",
        "import torch\ndef f(path):\n    return torch.load(path)\n",
        "import torch\ndef f(model, path):\n    torch.save(model.state_dict(), path)\n",
        "import torch\ndef seed(n):\n    torch.manual_seed(n)\n",
        "import torch\ndef make(n):\n    return torch.zeros(n)\n",
        "import torch\ndef f(x: torch.Tensor):\n    return x.shape[0] + 1\n",
        "import torch\ndef f(x: torch.Tensor):\n    return x.view(-1, 3)\n",
        "import torch\ndef f(x: torch.Tensor):\n    return x.cpu().numpy()\n",
        "import torch\ndef step(model, opt, x):\n    y = torch.sum(model(x))\n    y.backward()\n",
        "import torch\ndef main():\n    x = torch.randn(3)\n    print(x + 1)\n",
        "import torch\ndef test_relu(x):\n    assert torch.relu(x).sum() > 0\n",
        "import torch\ndef get_inputs(x):\n    return [torch.relu(x)]\n",
        "import torch\ndef device():\n    return torch.device('cpu')\n",
        "from torch.utils.data import DataLoader\ndef f(d):\n    return DataLoader(d)\n",
        "import torch, triton\n@triton.jit\ndef k(x):\n    return torch.relu(x)\n",
        "import torch, dataclasses\n@dataclasses.dataclass\nclass C:\n    t: torch.Tensor\n",
        "import torch\nclass Op(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x):\n        return torch.relu(x)\n",
        "import torch\ndef predict(model, x: torch.Tensor):\n    return model(x).softmax(-1)\n",
        "import torch\ndef f(x: torch.Tensor, act: torch.nn.Module):\n    return act(x) * 2\n",
        "import torch\nfrom cfg import Cfg\ndef f(x: torch.Tensor, c: Cfg):\n    return x * c.k\n",
        "import torch.nn as nn\nclass Base(nn.Module):\n    def forward(self, x):\n"
        "        raise NotImplementedError\n",
        "import torch.nn as nn\nclass Empty(nn.Module):\n    pass\n",
        "import torch.nn as nn\ndef make(n):\n    return nn.Linear(n, n)\n",
        "import torch\n'''\ndef f(x):\n    return torch.relu(x)\n'''\n",
    ],
)
def test_other_code_gets_no_lens(text: str) -> None:
    assert names(text) == []


def test_a_test_file_keeps_only_its_modules() -> None:
    text = HEADER + MODULE + "def check(x):\n    return torch.relu(x)\n"
    assert names(text, "/p/test_net.py") == ["module Net"]
    assert names(text, "/p/net.py") == ["module Net", "function check"]


@pytest.mark.parametrize(
    "text, expected",
    [
        (HEADER + MODULE, ["module Net"]),
        (HEADER + "if True:" + MODULE.replace("\n", "\n    "), ["module Net"]),
        (
            HEADER + "class Outer:" + MODULE.replace("\n", "\n    "),
            ["module Outer.Inner".replace("Inner", "Net")],
        ),
        (
            HEADER + "def make(n):" + MODULE.replace("\n", "\n    ") + "    return Net()\n",
            ["module make.<locals>.Net"],
        ),
        (HEADER + "@register('net')\n" + MODULE.lstrip(), ["module Net"]),
        (
            HEADER + "class Base(nn.Module):\n    pass\n" + MODULE.replace("nn.Module", "Base"),
            ["module Net"],
        ),
        (
            # A subclass without a forward of its own takes over its base's.
            HEADER + MODULE + "class Sub(Net):\n    pass\n",
            ["module Net", "module Sub"],
        ),
        (HEADER + "class Lin(nn.Linear):\n    pass\n", ["module Lin"]),
        (
            # The base comes from elsewhere; `forward` on tensors tells.
            HEADER + "from .base import Base\n" + MODULE.replace("nn.Module", "Base"),
            ["module Net"],
        ),
        (
            HEADER + "class Tool:\n    def scale(self, x: torch.Tensor):\n        return x * 2\n",
            ["function Tool.scale"],
        ),
        (
            # Methods of a module belong to its own Site.
            HEADER + MODULE + "    def extra(self, x: torch.Tensor):\n        return x * 2\n",
            ["module Net"],
        ),
        (
            HEADER + MODULE + MODULE,
            ["module Net", "module Net"],
        ),
    ],
)
def test_module_classes(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_redefinitions_have_ids_of_their_own() -> None:
    assert [s.id for s in find_sites(HEADER + MODULE + MODULE)] == ["module:Net", "module:Net:2"]


@pytest.mark.parametrize(
    "body, operations",
    [
        ("return x @ y", ("matmul",)),
        ("z = x.T @ y; z += 1; return -z", ("matmul", "add", "neg")),
        ("a, b = x.chunk(2); return a * b", ("mul",)),
        ("return [torch.exp(v) for v in (x, y)][0]", ("exp",)),
        ("v, i = torch.max(x, 1); return v.sum()", ("max", "sum")),
        ("return x[y > 0]", ("gt", "index")),
        ("x[0] = y.sum(); return x", ("sum", "index_put")),
        ("return x if y is None else x + y", ("add",)),
        ("n = x.shape[0] * 2; return x / n", ("div",)),
        ("for t in (x, y):\n        x = x + t\n    return x", ("add",)),
        ("with torch.no_grad():\n        return x.relu().sum()", ("relu", "sum")),
        ("return abs(x) + sum([x, y])", ("abs", "add")),
        ("return torch.cat([x, y], 1)", ("cat",)),
        ("f = F.gelu\n    return f(x)", ("gelu",)),
        ("if (z := x * 2) is not None:\n        return z.exp()", ("mul", "exp")),
    ],
)
def test_operations(body: str, operations: tuple[str, ...]) -> None:
    text = HEADER + f"def f(x: torch.Tensor, y: torch.Tensor):\n    {body}\n"
    (site,) = find_sites(text)
    assert site.operations == operations


@pytest.mark.parametrize(
    "annotation",
    [
        "torch.Tensor",
        "Tensor",
        '"torch.Tensor"',
        "Optional[Tensor]",
        "Tensor | None",
        'Float[Tensor, "b c"]',
        "list[Tensor]",
    ],
)
def test_annotations_tell_tensors(annotation: str) -> None:
    text = (
        "from torch import Tensor\nimport torch\nfrom typing import Optional\n"
        f"from jaxtyping import Float\ndef f(x: {annotation}):\n    return 2 * "
    ) + ("x[0]\n" if annotation.startswith("list") else "x\n")
    (site,) = find_sites(text)
    assert site.operations == ("mul",)


def test_header_is_below_the_decorators() -> None:
    text = (
        HEADER + "@a\n@b\nclass Net(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    )
    (site,) = find_sites(text)
    assert text[site.header :].startswith("class Net")
    assert text[site.start :].startswith("@a")
    assert text[site.start : site.end].endswith("x * 2")


def test_get_inputs_belong_to_one_site() -> None:
    tail = "def get_inputs():\n    return [torch.ones(3)]\n"
    text = HEADER + MODULE + MODULE.replace("Net", "Model") + tail
    assert [(s.name, s.workload_origin, s.missing) for s in find_sites(text)] == [
        ("Net", None, ("x",)),
        ("Model", "get_inputs", ()),
    ]
    # Without a `Model`: the class that the others do not use.
    user = "class Top(nn.Module):\n    def forward(self, x):\n        return Net()(x) * 2\n"
    assert [s.workload_origin for s in find_sites(HEADER + MODULE + user + tail)] == [
        None,
        "get_inputs",
    ]
    # A constructor that needs arguments needs get_init_inputs.
    init = MODULE.replace("    def", "    def __init__(self, n):\n        pass\n    def", 1)
    assert [s.missing for s in find_sites(HEADER + init + tail)] == [("x", "n")]
