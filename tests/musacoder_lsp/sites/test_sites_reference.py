"""Every Reference runs, and computes what the user's own code computes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from musacoder_verifier.reference import Reference
from site_markers import HEADER, at_cursor, selected

from musacoder_lsp.sites import Site, build_reference, find_sites

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True)
class Case:
    """`code` with a selection «…», a cursor ¦, or else its last Site. `check` sees the names of the
    user's file, `model`, `inputs`, `init`, `out`; `absent` must not be copied."""

    code: str
    check: str
    absent: tuple[str, ...] = field(default=())
    header: str = HEADER


MLP = """
class Mlp(nn.Module):
    # musacoder: init: dim=8
    def __init__(self, dim, hidden=16, *, bias=True):
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim)
        self.unused = nn.Linear(1000, 1000)
        self.scale = nn.Parameter(torch.full((dim,), 0.5))
        if bias:
            self.shift = nn.Parameter(torch.ones(dim))
        else:
            self.shift = None
        self.register_buffer("mask", torch.arange(dim) > 2)
        width = hidden * 2
        self.rate = 1.0 / width

    # musacoder: x: f32[4, 8]
    def forward(self, x, gain: float = 2.0):
        {}
"""

CASES = {
    "kernelbench": Case(
        "class Model(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.fc = nn.Linear(n, n)\n    def forward(self, x):\n"
        "        return self.fc(x).relu()\n"
        "def get_inputs():\n    return [torch.randn(2, 3)]\n"
        "def get_init_inputs():\n    return [3]\n",
        "same(out, loaded(Model(3))(*inputs))",
    ),
    "kernelbench under another name": Case(
        "class Net(nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
        "def get_inputs():\n    return [torch.randn(2, 3)]\n",
        "init == [] and same(out, Net()(*inputs))",
    ),
    "kernelbench with a function": Case(
        "def net(x, y):\n    return torch.relu(x) + y\n"
        "def get_inputs():\n    return [torch.randn(2, 3), torch.randn(3)]\n",
        "same(out, net(*inputs))",
    ),
    "latin-1 coding line": Case(
        "def net(x):\n    return torch.relu(x) + len('é')\n"
        "def get_inputs():\n    return [torch.ones(3)]\n",
        "same(out, net(*inputs))",
        header="# -*- coding: latin-1 -*-\nimport torch\n",
    ),
    "class with constructor arguments": Case(
        MLP.format("return self.down(F.gelu(self.up(x))) * gain"),
        "init == [8] and same(out, loaded(Mlp(8))(*inputs))",
    ),
    "class with keyword-only arguments": Case(
        "class Net(nn.Module):\n    # musacoder: init: n=3, slope=0.1\n"
        "    def __init__(self, n, k=7, *, slope):\n        super().__init__()\n"
        "        self.slope = slope\n    # musacoder: x: f32[2, 3], y: f32[3]\n"
        "    def forward(self, x, z=None, *, y):\n        return F.leaky_relu(x, self.slope) + y\n",
        "same(out, Net(3, slope=0.1)(inputs[0], y=inputs[1]))",
    ),
    "class Model with keyword-only inputs": Case(
        "class Model(nn.Module):\n    # musacoder: x: f32[2], y: f32[2]\n"
        "    def forward(self, x, *, y):\n        return x * y\n",
        "same(out, Model()(inputs[0], y=inputs[1]))",
    ),
    "function with helpers and constants": Case(
        "K = 3\nJ = K * 2\nUNUSED = 5\n"
        "def other(x):\n    return x\ndef helper(x):\n    return x * J\n"
        "# musacoder: x: f32[B, 3], B=2, alpha=0.5\n"
        "def f(x: torch.Tensor, alpha):\n    return torch.relu(helper(x)) * alpha\n",
        "same(out, f(inputs[0], 0.5))",
        absent=("UNUSED", "other"),
    ),
    "function with lists, defaults and keywords": Case(
        "# musacoder: xs: [f32[2, 3], f32[2, 3]], w: (f32[3], f32[3]), mode='sum'\n"
        "def f(xs: list[torch.Tensor], skip=None, *, w, mode):\n"
        "    y = torch.stack(xs) * w[0] + w[1]\n    return getattr(y, mode)(0)\n",
        "same(out, f(inputs[0], w=inputs[1], mode='sum'))",
    ),
    "function with varargs": Case(
        "# musacoder: xs: [f32[3], f32[3]]\ndef f(*xs: torch.Tensor):\n"
        "    return torch.stack(xs).sum(0)\n",
        "same(out, f(*inputs[0]))",
    ),
    "ints, bools and ranges": Case(
        "# musacoder: i: i64[2, 5] < 7, m: bool[2, 5], t: f32[7, 4], k: f32[4] in 2..3\n"
        "def f(i: torch.Tensor, m: torch.Tensor, t: torch.Tensor, k: torch.Tensor):\n"
        "    return F.embedding(i, t).masked_fill(m[..., None], 0.0) * k\n",
        "same(out, f(*inputs)) and inputs[3].min() >= 2 and inputs[3].max() < 3",
    ),
    "static method": Case(
        "class Tool:\n    @staticmethod\n    # musacoder: x: f32[3]\n"
        "    def f(x: torch.Tensor):\n        return torch.exp(x)\n",
        "same(out, Tool.f(*inputs))",
    ),
    "method of a plain class": Case(
        "# musacoder: init: k=3\nclass Tool:\n    def __init__(self, k):\n        self.k = k\n"
        "    # musacoder: x: f32[3]\n    def f(self, x: torch.Tensor):\n"
        "        return torch.exp(x) * self.k\n",
        "same(out, Tool(3).f(*inputs))",
    ),
    "nested class": Case(
        "class Outer(nn.Module):\n    class Inner(nn.Module):\n        # musacoder: x: f32[3]\n"
        "        def forward(self, x):\n            return x.relu()\n",
        "same(out, Outer.Inner()(*inputs))",
    ),
    "class in a function": Case(
        "def make():\n    class Net(nn.Module):\n        # musacoder: x: f32[3]\n"
        "        def forward(self, x):\n            return F.relu(x)\n    return Net\n",
        "same(out, make()()(*inputs))",
    ),
    "inherited forward": Case(
        "class Base(nn.Module):\n    # musacoder: x: f32[3]\n    def forward(self, x):\n"
        "        return self.act(x) * 2\n"
        "class Net(Base):\n    # musacoder: x: f32[3]\n"
        "    def __init__(self):\n        super().__init__()\n        self.act = nn.ReLU()\n",
        "same(out, Net()(*inputs))",
    ),
    "changed table": Case(
        "TABLE = {}\nTABLE['a'] = 2.0\nif True:\n    LIMIT = 1.0\nelse:\n    LIMIT = 2.0\n"
        "# musacoder: x: f32[3]\ndef f(x: torch.Tensor):\n"
        "    return torch.clamp(x * TABLE['a'], max=LIMIT)\n",
        "same(out, f(*inputs))",
    ),
    "one call": Case(
        "# musacoder: x: f32[2, 3], w: f32[3, 3]\ndef f(x: torch.Tensor, w: torch.Tensor):\n"
        "    return torch.relu(torch.¦tanh(x @ w)) + 1\n",
        "same(out, torch.tanh(inputs[0] @ inputs[1]))",
    ),
    "an operator": Case(
        "# musacoder: x: f32[2, 3], w: f32[3, 3]\ndef f(x: torch.Tensor, w: torch.Tensor):\n"
        "    return torch.relu(x ¦@ w) + 1\n",
        "same(out, inputs[0] @ inputs[1])",
    ),
    "call of a module": Case(
        MLP.format("return self.down(F.gelu(self.¦up(x)))"),
        "same(out, loaded(Mlp(8)).up(*inputs)) and not hasattr(model, 'unused')",
        absent=("unused", "down"),
    ),
    "call over several lines": Case(
        "# musacoder: x: f32[2, 3]\ndef f(x: torch.Tensor):\n"
        "    y = torch.¦softmax(\n        x,  # the input\n        dim=-1,\n    )\n    return y\n",
        "same(out, f(*inputs))",
    ),
    "selection with outputs": Case(
        "# musacoder: x: f32[2, 3]\ndef f(x: torch.Tensor):\n    a = 1\n"
        "    «b = x * 2\n    c = b + a\n    d = c.exp()»\n    return d + c\n",
        "len(out) == 2 and same(out[1] + out[0], f(*inputs))",
    ),
    "selection of half lines": Case(
        "# musacoder: x: f32[2, 3]\ndef f(x: torch.Tensor):\n"
        "    b = x «* 2\n    c = b» + 1\n    return c\n",
        "same(out, f(*inputs))",
    ),
    "selection of an expression": Case(
        "# musacoder: x: f32[2, 3]\ndef f(x: torch.Tensor):\n    return 1 + «x.exp() * 2»\n",
        "same(out + 1, f(*inputs))",
    ),
    "selection with attributes": Case(
        MLP.format(
            "«y = F.silu(self.up(x)).mean() * self.rate\n"
            "        y = x * self.scale * y + self.shift\n"
            "        y = y.masked_fill(self.mask, 0.0)»\n        return y * gain"
        ),
        "same(out * 2, loaded(Mlp(8))(*inputs)) and not hasattr(model, 'unused')",
        absent=("unused",),
    ),
    "selection with the return": Case(
        MLP.format(
            "y = x + 1\n        # musacoder: y: f32[4, 8]\n        «return F.relu(y) * gain»"
        ),
        "same(out, F.relu(inputs[0]) * 2)",
    ),
    "selection that calls a method": Case(
        "class Net(nn.Module):\n    # musacoder: init: n=3\n    def __init__(self, n):\n"
        "        super().__init__()\n        self.fc = nn.Linear(n, n)\n"
        "    def part(self, x):\n        return self.fc(x).relu()\n"
        "    # musacoder: x: f32[2, 3]\n    def forward(self, x):\n"
        "        «y = self.part(x) * 2»\n        return y\n",
        "same(out, loaded(Net(3))(*inputs))",
    ),
    "selection with shapes": Case(
        "# musacoder: q: f32[2, 4, 8], k: f32[2, 4, 8]\n"
        "def f(q: torch.Tensor, k: torch.Tensor, eps=1e-6):\n    import math\n"
        "    b, t, d = q.shape\n    scale = 1 / math.sqrt(d)\n"
        "    «s = (q @ k.transpose(1, 2)) * scale + eps\n    p = s.softmax(-1).view(b, t * t)»\n"
        "    return p\n",
        "same(out, f(*inputs))",
    ),
    "selection in a loop": Case(
        "# musacoder: x: f32[3], n: 3\ndef f(x: torch.Tensor, n):\n    for i in range(n):\n"
        "        «y = x * 2\n        x = y + 1»\n    return x\n",
        "same(out, f(inputs[0], 1))",
    ),
    "selection with a branch": Case(
        "# musacoder: x: f32[3], flag=False\ndef f(x: torch.Tensor, flag):\n"
        "    «if flag:\n        x = x * 2\n    y = x.exp()»\n    return y + x\n",
        "sum(1 for _ in out) == 2 and same(out[0] + out[1], f(inputs[0], False))",
    ),
    "selection that writes in place": Case(
        "# musacoder: x: f32[3], y: f32[3]\ndef f(x: torch.Tensor, y: torch.Tensor):\n"
        "    «x.add_(y)\n    x[0] = 1.0\n    x *= 2»\n    return x\n",
        "float(out[0]) == 2.0",
    ),
    "selection with tabs": Case(
        "# musacoder: x: f32[3]\ndef f(x: torch.Tensor):\n\tif True:\n\t\t«y = x * 2\n"
        "\t\tif y.sum() > 0:\n\t\t\ty = y + 1\n\t\tz = y»\n\treturn z\n",
        "same(out, f(*inputs))",
    ),
    "selection with a long string": Case(
        "# musacoder: x: f32[3]\ndef f(x: torch.Tensor):\n    if True:\n"
        "        «n = len('''a\n  b\n''')\n        y = x * n»\n    return y\n",
        "same(out, f(*inputs))",
    ),
    "conditional import": Case(
        "# musacoder: x: f32[3]\ndef f(x: torch.Tensor):\n"
        "    return x.relu() * math.pi * fast(x)\n",
        "same(out, f(*inputs))",
        header="import torch\ntry:\n    import nonexistent_module\nexcept ImportError:\n"
        "    import math\n    def fast(x):\n        return 2\n",
    ),
    "star import": Case(
        "# musacoder: x: f32[3]\ndef f(x):\n    return relu(x) * 2\n",
        "same(out, f(*inputs))",
        header="from torch.nn.functional import *\nfrom torch.nn.functional import relu\n",
    ),
    "torch under another name": Case(
        "# musacoder: x: f32[3]\ndef f(x):\n    return t.relu(x) * 2\n",
        "same(out, f(*inputs))",
        header="from __future__ import annotations\nimport torch as t\n",
    ),
    "strange line endings and letters": Case(
        "# musacoder: x: f32[3]\r\ndef f(x: torch.Tensor):\r\n    s = '🙂漢'; y = x.exp()\r\n\f\r\n"
        "    return y * len(s)\r\n",
        "same(out, f(*inputs))",
        header="\ufeffimport torch\r\n",
    ),
    "lone carriage returns": Case(
        "# musacoder: x: f32[3]\rdef f(x: torch.Tensor):\r    y = x.exp()\r    return y * 2\r",
        "same(out, f(*inputs))",
        header="import torch\r",
    ),
}


def reference_of(case: Case) -> tuple[Reference, str]:
    """The Reference, and the user's file without markers."""
    text = case.header + case.code
    if "¦" in text:
        index, site = at_cursor(text)
    elif "«" in text:
        index, site = selected(text)
    else:
        index, site = None, find_sites(text)[-1]
    assert isinstance(site, Site), site
    plain = index.text if index is not None else text
    built = build_reference(site, plain, "/project/user.py", read=lambda path: None)
    assert isinstance(built, Reference), built
    return built, plain


def _job(reference: Reference, user: str, check: str) -> dict[str, Any]:
    roots = list(reference.import_roots)
    return {"source": reference.source, "user": user, "check": check, "roots": roots}


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    """What went wrong with each case; all run in one process, because importing torch is slow."""
    cases = []
    for name, case in CASES.items():
        try:
            reference, user = reference_of(case)
        except AssertionError:
            continue  # its own test shows why
        cases.append((name, _job(reference, user.lstrip("\ufeff"), case.check)))
    for path in sorted(EXAMPLES.glob("*.py")):
        text = path.read_text()
        for site in find_sites(text, str(path)):
            built = build_reference(site, text, str(path), roots=[EXAMPLES])
            if isinstance(built, Reference):
                small = built.source.replace("2048", "64").replace("(4096, 1024)", "(64, 32)")
                job = _job(built, "", "out is not None") | {"source": small}
                cases.append((f"{path.name}: {site.name}", job))
    runner = Path(__file__).with_name("reference_runner.py")
    done = subprocess.run(
        [sys.executable, str(runner)],
        input=json.dumps([case for _, case in cases]),
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: result for (name, _), result in zip(cases, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_reference_computes_what_the_user_computes(name: str, results: dict[str, str]) -> None:
    reference, _ = reference_of(CASES[name])
    assert results[name] == "", f"{results[name]}\n{reference.source}"
    for text in CASES[name].absent:
        assert text not in reference.source


@pytest.mark.parametrize("name", CASES)
def test_lines_lead_back_to_the_user(name: str) -> None:
    reference, user = reference_of(CASES[name])
    lines = user.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert len(reference.lines) == reference.source.count("\n")
    copied = 0
    for text, origin in zip(reference.source.split("\n"), reference.lines, strict=False):
        if origin is not None:
            copied += 1
            assert origin.path == "/project/user.py"
            own = lines[origin.line].strip().lstrip("\ufeff")
            if "coding" not in text:
                assert text.strip() in own
    assert copied


def test_a_coding_line_does_not_outlive_its_file() -> None:
    # References are written as UTF-8.
    reference, _ = reference_of(CASES["latin-1 coding line"])
    assert reference.source.startswith("# -*- coding: utf-8 -*-\n")


def test_examples_run(results: dict[str, str]) -> None:
    ran = {name: result for name, result in results.items() if ".py: " in name}
    assert len(ran) >= 7
    assert not any(ran.values()), ran


def test_the_example_without_tensor_code_has_no_sites() -> None:
    assert find_sites((EXAMPLES / "training.py").read_text()) == ()
