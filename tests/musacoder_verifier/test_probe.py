"""The probe child on References that work, and on every way that a Reference fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from musacoder_verifier.worker import ChildDied, ChildTimeout, Limits, Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMITS = Limits(seconds=60, memory_bytes=1 << 30, processes="some", network=True)

MODEL = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""


async def probe(worker: Worker, source: str, limits: Limits = LIMITS, **spec: Any) -> Any:
    """The answer; the stages that it went through are added to it."""
    stages = []
    async with worker.child("probe", {"source": source, **spec}, limits=limits) as child:
        while "stage" in (message := await child.receive()):
            stages.append(message["stage"])
    return {**message, "stages": stages}


async def test_a_workload_is_described(worker: Worker) -> None:
    source = """import torch
class Model(torch.nn.Module):
    def __init__(self, width, *, bias):
        super().__init__()
        self.inner = torch.nn.Linear(width, 3, bias=bias)
    def forward(self, x, mask, scale=2.0, *rest):
        assert torch.is_grad_enabled() is False and self.training is True
        return {"y": self.inner(x) * scale, "parts": [mask, None, 7, float("inf")]}
def get_inputs():
    x = torch.arange(32.0).reshape(4, 8).t()
    return [x, torch.tensor([True, False]), 3, "text", [torch.ones(0), {"k": torch.tensor(5)}]]
def get_init_inputs():
    return {"width": 4, "bias": False}
"""
    answer = await probe(worker, source, training=True)
    assert "failure" not in answer, answer["failure"]["detail"]
    assert answer["stages"] == ["import", "model", "inputs", "forward"]
    inputs = {spec["name"]: spec for spec in answer["inputs"]}
    assert list(inputs) == ["x", "mask", "scale", "rest0", "rest1[0]", "rest1[1]['k']"]
    assert inputs["x"] == {
        "name": "x",
        "dtype": "float32",
        "shape": [8, 4],
        "stride": [1, 8],
        "device": "cpu",
        "low": 0.0,
        "high": 31.0,
    }
    assert (inputs["mask"]["dtype"], inputs["mask"]["low"], inputs["mask"]["high"]) == (
        "bool",
        0,
        1,
    )
    assert inputs["scale"] == {"name": "scale", "dtype": "int", "value": "3"}
    assert inputs["rest0"] == {"name": "rest0", "dtype": "str", "value": "'text'"}
    assert inputs["rest1[0]"]["low"] is None
    assert inputs["rest1[1]['k']"]["shape"] == []
    kinds = [leaf["kind"] for leaf in answer["outputs"]["leaves"]]
    assert kinds == ["tensor", "tensor", "value", "value", "value"]
    assert answer["training"] is True
    assert answer["versions"]["torch"] == worker.info.torch_version


@pytest.mark.parametrize(
    ("returned", "low", "high"),
    [
        ("torch.tensor([float('-inf'), 1.0, float('nan'), 2.0])", 1.0, 2.0),
        ("torch.full((3,), float('nan'))", None, None),
        ("torch.tensor([-3, 9], dtype=torch.int8)", -3, 9),
        ("torch.ones(2, dtype=torch.bfloat16)", 1, 1),
        ("torch.ones(2, dtype=torch.float8_e4m3fn).to(torch.float8_e4m3fn)", 1, 1),
        ("torch.ones(2, dtype=torch.complex64)", None, None),
        ("torch.eye(2).to_sparse()", None, None),
        ("torch.ones(2, device='meta')", None, None),
        ("torch.nn.Parameter(torch.ones(2))", 1, 1),
    ],
)
async def test_ranges_are_of_finite_values(
    worker: Worker, returned: str, low: float | None, high: float | None
) -> None:
    source = MODEL.replace("x + 1", "0") + f"def get_inputs(): return [{returned}]\n"
    answer = await probe(worker, source)
    assert "failure" not in answer, answer["failure"]["detail"]
    assert (answer["inputs"][0]["low"], answer["inputs"][0]["high"]) == (low, high)


@pytest.mark.parametrize(
    "body",
    [
        "return (torch.ones(3),)",
        "return {'x': torch.ones(3)}",
        "yield torch.ones(3)",
        "return map(torch.ones, [3])",
    ],
)
async def test_inputs_may_come_in_any_container(worker: Worker, body: str) -> None:
    answer = await probe(worker, MODEL + f"def get_inputs():\n    {body}\n")
    assert [(spec["name"], spec["shape"]) for spec in answer["inputs"]] == [("x", [3])]


INPUTS = "def get_inputs(): return [torch.ones(3)]\n"


@pytest.mark.parametrize(
    ("source", "stage", "line", "sentence"),
    [
        ("\n\ndef f(:\n    pass\n", "import", 3, "the Reference is not valid Python"),
        ("x = 1\n\0", "import", None, "null bytes"),
        ("import no_such_module.sub\n" + MODEL, "import", 1, "pip install no_such_module"),
        ("from torch import no_such\n" + MODEL, "import", 1, "ImportError: cannot import name"),
        ("", "import", None, "defines no class Model"),
        (INPUTS, "import", None, "defines no class Model"),
        ("Model = 3\n" + INPUTS, "import", None, "defines no class Model"),
        (MODEL, "import", None, "defines no function get_inputs"),
        ("class Model: pass\n" + INPUTS, "model", None, "no torch.nn.Module"),
        (MODEL + INPUTS + "def get_init_inputs(): return 3\n", "model", None, "returns a int"),
        (MODEL + INPUTS + "def get_init_inputs(): return [3]\n", "model", None, "Model raised"),
        (MODEL + "def get_inputs(): return torch.ones(3)\n", "inputs", None, "returns a Tensor"),
        (MODEL + "def get_inputs(): return None\n", "inputs", None, "returns a NoneType"),
        (MODEL + "def get_inputs(): return {'y': 1}\n", "inputs", None, "does not fit forward"),
        (MODEL + "def get_inputs():\n    while True: yield 1\n", "inputs", None, "more than 1000"),
        (MODEL + "def get_inputs():\n    return [1 / 0]\n", "inputs", 6, "get_inputs raised Zero"),
        (
            MODEL + "def get_inputs(): return ['x']\n",
            "forward",
            4,
            "Model.forward raised TypeError",
        ),
        (MODEL + "def get_inputs(): return []\n", "forward", None, "missing 1 required"),
        (MODEL + "import sys\ndef get_inputs(): sys.exit(3)\n", "inputs", 6, "called sys.exit(3)"),
        (MODEL + "raise KeyboardInterrupt\n" + INPUTS, "import", 5, "raised KeyboardInterrupt"),
    ],
)
async def test_a_failure_names_stage_line_and_reason(
    worker: Worker, source: str, stage: str, line: int | None, sentence: str
) -> None:
    failure = (await probe(worker, source))["failure"]
    assert (failure["stage"], failure["line"]) == (stage, line)
    assert sentence in failure["message"]
    assert "\n" not in failure["message"]


async def test_a_failure_in_an_imported_file_names_both_places(
    worker: Worker, tmp_path: Path
) -> None:
    (tmp_path / "layers.py").write_text("def build():\n    raise ValueError('no layers')\n")
    source = "import layers\nlayers.build()\n" + MODEL + INPUTS
    failure = (await probe(worker, source, import_roots=[str(tmp_path)]))["failure"]
    assert failure["line"] == 2
    assert failure["frames"][-1]["file"] == str(tmp_path / "layers.py")
    assert failure["frames"][-1]["text"] == "raise ValueError('no layers')"


async def test_the_code_finds_what_lies_beside_its_file(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "size.txt").write_text("5")
    source = (
        "from __future__ import annotations\nimport pathlib\n"
        + MODEL
        + "SIZE = int((pathlib.Path(__file__).parent / 'size.txt').read_text())\n"
        + "def get_inputs(): return [torch.ones(SIZE)]\n"
    )
    answer = await probe(worker, source, path=str(tmp_path / "net.py"))
    assert answer["inputs"][0]["shape"] == [5]


async def test_source_can_be_inspected_and_scripted(worker: Worker) -> None:
    source = (
        "import inspect\n"
        + MODEL
        + "assert 'return x + 1' in inspect.getsource(Model)\n"
        + "@torch.jit.script\ndef double(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n"
        + INPUTS
    )
    answer = await probe(worker, source)
    assert "failure" not in answer, answer["failure"]["detail"]


@pytest.mark.parametrize("place", ["import", "model", "inputs", "forward"])
async def test_an_endless_loop_is_placed(worker: Worker, place: str) -> None:
    loop = "while True: pass"
    source = {
        "import": f"{loop}\n",
        "model": MODEL + f"    def __init__(self):\n        {loop}\n" + INPUTS,
        "inputs": MODEL + f"def get_inputs():\n    {loop}\n",
        "forward": MODEL.replace("return x + 1", loop) + INPUTS,
    }[place]
    limits = Limits(seconds=60, processes="some")
    async with worker.child("probe", {"source": source}, limits=limits) as child:
        while (await child.receive())["stage"] != place:
            pass
        with pytest.raises(ChildTimeout):
            await child.receive(timeout=0.1)


async def test_rude_references_harm_nobody(worker: Worker) -> None:
    printing = "import sys\nprint('x' * 5_000_000)\nsys.stderr.write('y' * 5_000_000)\n"
    assert "inputs" in await probe(worker, printing + MODEL + INPUTS)

    with pytest.raises(ChildDied) as caught:
        await probe(worker, MODEL + "import os\ndef get_inputs(): os._exit(7)\n")
    assert caught.value.exit_code == 7

    forking = "import os, signal\nif os.fork() == 0: signal.pause()\n"
    assert "inputs" in await probe(worker, forking + MODEL + INPUTS)

    both_sides = "import os\nos.fork()\n"
    assert "inputs" in await probe(worker, both_sides + MODEL + INPUTS)

    greedy = MODEL + "def get_inputs():\n    return [torch.ones(1 << 40)]\n"
    failure = (await probe(worker, greedy))["failure"]
    assert (failure["line"], failure["type"]) == (6, "RuntimeError")


async def test_the_same_seed_gives_the_same_inputs(worker: Worker) -> None:
    source = MODEL + "def get_inputs(): return [torch.rand(50)]\n"
    answers = [await probe(worker, source, seed=seed) for seed in (1, 1, 2)]
    ranges = [(a["inputs"][0]["low"], a["inputs"][0]["high"]) for a in answers]
    assert ranges[0] == ranges[1] != ranges[2]
