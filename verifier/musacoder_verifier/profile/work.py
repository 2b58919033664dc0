"""Bytes that must move and operations that must be done, counted from an operator graph.

The graph is that of docs/graph.md. Bytes are the least that any implementation moves: every input,
parameter and buffer that is used is read once, every output is written once, and what lies between
two operators never leaves the chip. So a kernel that rereads its input achieves less than it seems
to, and one that keeps data in a cache from call to call may achieve more than memory can deliver.

Operations: a multiply-add is two (the convention of rooflines, Williams, Waterman, Patterson 2009);
a special function (exp, tanh, ...) is one. Matrix products and convolutions are counted apart,
since they alone can use matrix units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log2, prod
from typing import Any

from musacoder_verifier.profile import operators

Tensor = Mapping[str, Any]

_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
    "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex32": 4,
    "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """Of one call. `matrix_dtype` is that of the operands of most matrix operations. `guessed` are
    operators without a rule, counted as one operation for each element of their results."""

    bytes_read: int = 0
    bytes_written: int = 0
    matrix_operations: int = 0
    other_operations: int = 0
    matrix_dtype: str | None = None
    guessed: tuple[str, ...] = ()

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def operations(self) -> int:
        return self.matrix_operations + self.other_operations


def to_json(work: Work) -> dict[str, Any]:
    return {**asdict(work), "guessed": list(work.guessed)}


def from_json(body: Mapping[str, Any]) -> Work:
    """Raises KeyError, TypeError or ValueError for what `to_json` did not write."""
    return Work(
        int(body["bytes_read"]),
        int(body["bytes_written"]),
        int(body["matrix_operations"]),
        int(body["other_operations"]),
        str(body["matrix_dtype"]) if body["matrix_dtype"] is not None else None,
        tuple(str(name) for name in body["guessed"]),
    )


def count(graph: Mapping[str, Any]) -> Work:
    """The work of one call of the graph's program. KeyError for what is no such graph."""
    tensors = _tensors(graph)
    matrix: dict[str, int] = {}
    other = 0
    guessed: set[str] = set()
    for node in graph["nodes"]:
        name = operator_name(node["op"])
        results = [tensor for tensor in node["outputs"] if tensor is not None]
        operands = [tensors[ref] for ref in _refs([*node["args"], *node["kwargs"].values()])
                    if ref in tensors]  # fmt: skip
        products = _products(name, node["args"], tensors, results)
        if products:
            dtype = str(operands[-1]["dtype"]) if operands else "float32"
            matrix[dtype] = matrix.get(dtype, 0) + products
        elif name not in operators.MATRIX:
            other += _others(name, operands, results)
            if not operators.known(name):
                guessed.add(name)
    most = max(matrix, key=lambda key: matrix[key], default=None)
    return Work(
        _read(graph, tensors),
        _written(graph, tensors),
        sum(matrix.values()),
        other,
        most,
        tuple(sorted(guessed)),
    )


def operator_name(overload: str) -> str:
    """`softmax` of `aten._softmax.default`: the packet without namespace and underscores around."""
    parts = overload.split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).strip("_")


def _tensors(graph: Mapping[str, Any]) -> dict[tuple[str, int], Tensor]:
    found: dict[tuple[str, int], Tensor] = {
        (entry["name"], 0): entry for entry in graph["inputs"] if "shape" in entry
    }
    for node in graph["nodes"]:
        for index, tensor in enumerate(node["outputs"]):
            if tensor is not None:
                found[node["name"], index] = tensor
    return found


def _refs(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, Mapping):
        if "ref" in value:
            yield str(value["ref"]), int(value.get("index", 0))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _refs(item)


def _elements(tensor: Tensor) -> int:
    return prod(int(size) for size in tensor["shape"])


def _size(tensor: Tensor) -> int:
    return _elements(tensor) * _BYTES.get(str(tensor["dtype"]), 4)


def _storage(tensor: Tensor) -> int:
    """Bytes of the distinct elements: an expanded dimension has stride 0 and is read once."""
    strides = tensor.get("stride") or [1] * len(tensor["shape"])
    sizes = [
        int(size) for size, stride in zip(tensor["shape"], strides, strict=True) if stride != 0
    ]
    return prod(sizes) * _BYTES.get(str(tensor["dtype"]), 4)


def _products(
    name: str,
    arguments: Sequence[Any],
    tensors: Mapping[tuple[str, int], Tensor],
    results: Sequence[Tensor],
) -> int:
    """Operations of a matrix product, convolution or attention; 0 for any other operator."""
    rule = operators.MATRIX.get(name)
    if rule is None or not results:
        return 0
    given = [tensors.get(next(_refs(argument), ("", -1))) for argument in arguments]
    first, second = given[rule.first], given[rule.first + 1]
    if first is None or second is None:
        return 0
    if rule.kind == "product":
        return 2 * _elements(results[0]) * int(first["shape"][-1] if first["shape"] else 1)
    if rule.kind == "attention":
        value = given[rule.first + 2] or second
        rows, keys = _elements(first) // max(int(first["shape"][-1]), 1), int(second["shape"][-2])
        return 2 * rows * keys * (int(first["shape"][-1]) + int(value["shape"][-1]))
    # Each output element (of a transposed convolution: each input element) meets one filter slice.
    transposed = len(arguments) > 6 and arguments[6] is True
    places = first if transposed else results[0]
    return 2 * _elements(places) * prod(int(size) for size in second["shape"][1:])


def _others(name: str, operands: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    written = max((_elements(tensor) for tensor in results), default=0)
    if name in operators.MOVES:
        return 0
    if name in operators.SORTS:
        return written * max(1, ceil(log2(max(written, 2))))
    read = max((_elements(tensor) for tensor in operands), default=0)
    if name in operators.PER_INPUT:
        return operators.PER_INPUT[name] * read
    return operators.PER_OUTPUT.get(name, 1) * written


def _written(graph: Mapping[str, Any], tensors: Mapping[tuple[str, int], Tensor]) -> int:
    """A result that is a view of an input is not written."""
    roots = _view_roots(graph)
    inputs = {entry["name"] for entry in graph["inputs"]}
    distinct = {ref for output in graph["outputs"] for ref in _refs(output["value"])}
    return sum(
        _storage(tensors[ref])
        for ref in distinct
        if ref in tensors and roots.get(ref, ref)[0] not in inputs
    )


def _view_roots(graph: Mapping[str, Any]) -> dict[tuple[str, int], tuple[str, int]]:
    """Result of a view operator -> what it is a view of, through any chain of views."""
    roots: dict[tuple[str, int], tuple[str, int]] = {}
    for node in graph["nodes"]:
        if operator_name(node["op"]) in operators.VIEWS:
            base = next(_refs(node["args"]), None)
            if base is not None:
                for index in range(len(node["outputs"])):
                    roots[node["name"], index] = roots.get(base, base)
    return roots


def _read(graph: Mapping[str, Any], tensors: Mapping[tuple[str, int], Tensor]) -> int:
    """Of each input at most its own size; a slice or a lookup reads only what it takes."""
    roots = _view_roots(graph)
    taken: dict[str, int] = {}
    for node in graph["nodes"]:
        name = operator_name(node["op"])
        if name in operators.VIEWS or name in operators.SHAPE_ONLY:
            continue
        results = [tensor for tensor in node["outputs"] if tensor is not None]
        for place, ref in enumerate(_refs([*node["args"], *node["kwargs"].values()])):
            if ref not in tensors:
                continue
            amount = _storage(tensors[ref])
            if name in operators.LOOKUPS and place == 0 and results:
                amount = min(amount, _size(results[0]))
            root = roots.get(ref, ref)[0]
            taken[root] = taken.get(root, 0) + amount
    return sum(
        min(taken.get(entry["name"], 0), _storage(entry))
        for entry in graph["inputs"]
        if "shape" in entry
    )
