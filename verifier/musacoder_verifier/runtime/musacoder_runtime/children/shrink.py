"""Shrink child: a benchmark's Reference at a size that this machine's CPU handles in milliseconds.

One rule for every problem: the integers of module-level assignments that are larger than 32 are
multiplied by one factor, equal integers staying equal, multiples of 8 staying multiples of 8, none
falling below 16. The factor is the largest power of 1/2 at which the inputs have at most
`elements` elements and a forward takes at most `milliseconds`.
"""

from __future__ import annotations

import ast
import time
from typing import Any, Dict, List, Tuple

import torch

from musacoder_runtime import reference_module

SMALL = 32
LEAST = 16
_HALVINGS = 14


def scale_constant(value: int, factor: float) -> int:
    if value <= SMALL:
        return value
    scaled = max(value * factor, LEAST)
    if value % 8 == 0:
        return round(scaled / 8) * 8
    return round(scaled) | (value & 1)


def scale_source(source: str, factor: float) -> str:
    """`source` with the integers of its module-level assignments scaled."""
    edits: List[Tuple[int, int, int, str]] = []
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign):
            continue
        for node in _integers(statement.value):
            value = int(eval(compile(ast.Expression(node), "<constant>", "eval"), {}))
            scaled = scale_constant(value, factor)
            if scaled != value and node.end_col_offset is not None:
                edits.append((node.lineno, node.col_offset, node.end_col_offset, str(scaled)))
    lines = source.split("\n")
    for line, start, end, text in sorted(edits, reverse=True):
        lines[line - 1] = lines[line - 1][:start] + text + lines[line - 1][end:]
    return "\n".join(lines)


def _integers(node: ast.expr) -> List[ast.expr]:
    """The integer constants of a value, products such as `8192 * 2` as one."""
    if isinstance(node, ast.Constant):
        return [node] if type(node.value) is int else []
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
        constant = all(isinstance(p, ast.Constant) and type(p.value) is int for p in parts)
        return [node] if constant and isinstance(node.op, (ast.Mult, ast.Add, ast.Sub)) else []
    if isinstance(node, (ast.Tuple, ast.List)):
        return [found for part in node.elts for found in _integers(part)]
    return []


def main(channel: Any, spec: Dict[str, Any]) -> None:
    """Answers `{"source", "factor", "milliseconds"}` or `{"error": sentence}`; `spec` is that of
    a Reference with `elements`, `milliseconds` and `threads`."""
    torch.set_num_threads(int(spec.get("threads") or 1))
    fault = "no size tried was small enough"
    factor = 1.0
    for _ in range(_HALVINGS):
        source = scale_source(spec["source"], factor)
        trial = dict(spec, source=source)
        try:
            if _elements(trial) <= spec["elements"]:
                taken = _milliseconds(trial)
                if taken <= spec["milliseconds"]:
                    channel.send({"source": source, "factor": factor, "milliseconds": taken})
                    return
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            break
        factor /= 2
    channel.send({"error": fault.splitlines()[0][:300]})


def _elements(spec: Dict[str, Any]) -> int:
    """Elements of all inputs, counted without making them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = reference_module.load(spec)
    with FakeTensorMode():
        given = module.get_inputs()
    leaves = torch.utils._pytree.tree_flatten(given)[0]
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))


def _milliseconds(spec: Dict[str, Any]) -> float:
    """The second forward of the Reference."""
    model, inputs = reference_module.build(reference_module.load(spec), spec)
    taken = 0.0
    with torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            model(*inputs)
            taken = (time.perf_counter() - start) * 1e3
            if taken > 4 * spec["milliseconds"]:
                break
    return taken
