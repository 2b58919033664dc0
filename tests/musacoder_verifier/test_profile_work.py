"""Bytes and operations counted from operator graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from musacoder_verifier.profile import work
from musacoder_verifier.profile.work import Work, count


def tensor(*shape: int, dtype: str = "float32", stride: Sequence[int] | None = None) -> Any:
    if stride is None:
        stride = [1] * len(shape)
        for at in range(len(shape) - 2, -1, -1):
            stride[at] = stride[at + 1] * shape[at + 1]
    return {"dtype": dtype, "shape": list(shape), "stride": list(stride)}


def graph(inputs: dict[str, Any], *nodes: tuple[str, str, list[Any], Any], out: str = "") -> Any:
    """Nodes are (name, operator, arguments, result or list of results)."""
    written = [
        {
            "name": name,
            "op": f"aten.{op}",
            "args": args,
            "kwargs": {},
            "outputs": result if isinstance(result, list) else [result],
        }
        for name, op, args, result in nodes
    ]
    ref = {"ref": out or nodes[-1][0]}
    return {
        "inputs": [{"name": name, "kind": "input", **value} for name, value in inputs.items()],
        "nodes": written,
        "outputs": [{"kind": "output", "target": None, "value": ref}],
    }


X = {"ref": "x"}
W = {"ref": "w"}


def test_a_chain_reads_its_input_once_and_writes_its_result_once() -> None:
    found = count(
        graph(
            {"x": tensor(8, 16)},
            ("a", "mul.Tensor", [X, 2.0], tensor(8, 16)),
            ("b", "add.Tensor", [{"ref": "a"}, X], tensor(8, 16)),
        )
    )
    assert found == Work(8 * 16 * 4, 8 * 16 * 4, 0, 2 * 8 * 16)
    assert (found.bytes_moved, found.operations) == (1024, 256)


@pytest.mark.parametrize(
    "op, args, shapes, result, operations",
    [
        ("mm.default", [X, W], [(3, 5), (5, 7)], (3, 7), 2 * 3 * 5 * 7),
        ("bmm.default", [X, W], [(2, 3, 5), (2, 5, 7)], (2, 3, 7), 2 * 2 * 3 * 5 * 7),
        ("addmm.default", [{"ref": "b"}, X, W], [(3, 5), (5, 7)], (3, 7), 2 * 3 * 5 * 7),
        ("mv.default", [X, W], [(3, 5), (5,)], (3,), 2 * 3 * 5),
        ("dot.default", [X, W], [(5,), (5,)], (), 2 * 5),
        # 4 x 6 x 6 results, each of 3 x 3 x 3 products.
        (
            "convolution.default",
            [X, W, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1],
            [(1, 3, 8, 8), (4, 3, 3, 3)],
            (1, 4, 6, 6),
            2 * 4 * 6 * 6 * 27,
        ),
        # Depthwise: the filter has one input channel.
        (
            "convolution.default",
            [X, W, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 8],
            [(2, 8, 5, 5), (8, 1, 3, 3)],
            (2, 8, 5, 5),
            2 * 2 * 8 * 25 * 9,
        ),
        # Transposed: each of 3 x 4 x 4 inputs meets 5 x 2 x 2 weights.
        (
            "convolution.default",
            [X, W, None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1],
            [(1, 3, 4, 4), (3, 5, 2, 2)],
            (1, 5, 8, 8),
            2 * 3 * 4 * 4 * 5 * 4,
        ),
    ],
)  # fmt: skip
def test_products(op: str, args: list[Any], shapes: Any, result: Any, operations: int) -> None:
    inputs = {"x": tensor(*shapes[0]), "w": tensor(*shapes[1]), "b": tensor(7)}
    found = count(graph(inputs, ("y", op, args, tensor(*result))))
    assert (found.matrix_operations, found.matrix_dtype) == (operations, "float32")
    assert (found.other_operations, found.guessed) == (0, ())


def test_attention_is_two_products() -> None:
    q, k, v = tensor(2, 4, 10, 16), tensor(2, 4, 12, 16), tensor(2, 4, 12, 8)
    args = [{"ref": "q"}, {"ref": "k"}, {"ref": "v"}]
    op = "_scaled_dot_product_flash_attention_for_cpu.default"
    made = graph({"q": q, "k": k, "v": v}, ("y", op, args, [tensor(2, 4, 10, 8), tensor(2, 4, 10)]))
    assert count(made).matrix_operations == 2 * 2 * 4 * 10 * 12 * (16 + 8)


def test_reductions_count_what_they_read() -> None:
    found = count(graph({"x": tensor(8, 16)}, ("y", "sum.dim_IntList", [X, [1]], tensor(8))))
    assert found == Work(8 * 16 * 4, 8 * 4, 0, 8 * 16)


def test_views_cost_nothing_and_a_slice_is_all_that_is_read() -> None:
    found = count(
        graph(
            {"x": tensor(100, 16, dtype="float16")},
            ("s", "slice.Tensor", [X, 0, 0, 10], tensor(10, 16, dtype="float16")),
            ("v", "view.default", [{"ref": "s"}, [160]], tensor(160, dtype="float16")),
            ("y", "relu.default", [{"ref": "v"}], tensor(160, dtype="float16")),
        )
    )
    assert found == Work(160 * 2, 160 * 2, 0, 160)


def test_a_view_that_is_the_result_is_not_written() -> None:
    made = graph({"x": tensor(8, 16)}, ("v", "view.default", [X, [128]], tensor(128)))
    assert count(made) == Work(0, 0, 0, 0)


def test_an_expanded_operand_is_read_once() -> None:
    found = count(
        graph(
            {"x": tensor(8, 16), "w": tensor(16)},
            ("e", "expand.default", [W, [8, 16]], tensor(8, 16, stride=(0, 1))),
            ("y", "add.Tensor", [X, {"ref": "e"}], tensor(8, 16)),
        )
    )
    assert found.bytes_read == (8 * 16 + 16) * 4


def test_a_lookup_reads_what_it_takes() -> None:
    inputs = {"w": tensor(50_000, 64), "x": tensor(32, dtype="int64")}
    found = count(graph(inputs, ("y", "embedding.default", [W, X], tensor(32, 64))))
    assert found == Work(32 * 64 * 4 + 32 * 8, 32 * 64 * 4, 0, 0)


def test_an_input_used_twice_is_read_once_and_an_unused_one_never() -> None:
    inputs = {"x": tensor(64), "w": tensor(1000)}
    found = count(graph(inputs, ("y", "mul.Tensor", [X, X], tensor(64))))
    assert found.bytes_read == 64 * 4


def test_an_operator_without_a_rule_is_named() -> None:
    found = count(graph({"x": tensor(64)}, ("y", "zeta_of_all.default", [X], tensor(64))))
    assert (found.other_operations, found.guessed) == (64, ("zeta_of_all",))


def test_results_that_are_no_tensors_are_left_out() -> None:
    made = graph({"x": tensor(64)}, ("y", "max.dim", [X, 0], [tensor(), None]))
    assert count(made).bytes_written == 4


def test_json_and_back() -> None:
    found = Work(1, 2, 3, 4, "bfloat16", ("a",))
    assert work.from_json(work.to_json(found)) == found


@pytest.mark.asyncio(loop_scope="session")
async def test_the_graph_of_a_real_module_is_counted(worker: Any) -> None:
    from musacoder_verifier import probe
    from musacoder_verifier.reference import Reference

    source = (
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(32, 48)\n"
        "    def forward(self, x):\n"
        "        return torch.softmax(torch.relu(self.linear(x)), dim=-1)\n"
        "def get_inputs():\n"
        "    return [torch.randn(16, 32)]\n"
    )
    exported = await probe.export(worker, Reference(source), timeout=120.0, sandbox=False)
    assert exported.graph is not None, exported.error
    found = count(exported.graph)
    assert found.bytes_read == 4 * (16 * 32 + 32 * 48 + 48)
    assert found.bytes_written == 4 * 16 * 48
    assert found.matrix_operations == 2 * 16 * 32 * 48
    # relu, and the five steps of a softmax.
    assert found.other_operations == 6 * 16 * 48
    assert found.guessed == ()
