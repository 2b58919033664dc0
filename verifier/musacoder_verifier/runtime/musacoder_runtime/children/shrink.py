"""Shrink child: a benchmark's Reference at a size that a CPU handles in tens of milliseconds.

One rule for every problem: the integers of module-level assignments that are larger than 32 are
multiplied by one factor, equal integers staying equal, multiples of 8 staying multiples of 8, none
falling below 16. The factor is the largest power of 1/2 at which the inputs have at most
`elements` elements and a forward does at most `operations` operations, which are counted, not
timed: the size is the same on every machine, however busy it is. Where no factor is small enough,
the integers larger than 11 (so no kernel size of a convolution) are scaled, down to 8.
"""

from __future__ import annotations

import ast
from typing import Any, Dict, List, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from musacoder_runtime import reference_module, tensor_tree

# Floating-point operations that a processor does in the time in which it moves one float32: some
# 16 a cycle for each core's vector unit, against some 4 bytes a cycle from memory.
MOVED = 16
SMALL, LEAST = 32, 16
# The second attempt.
SMALLER, LEAST_OF_ALL = 11, 8
_HALVINGS = 14


def scale_constant(value: int, factor: float, small: int = SMALL, least: int = LEAST) -> int:
    """Integers up to `small` stay; none falls below `least`."""
    if value <= small:
        return value
    scaled = max(value * factor, least)
    if value % 8 == 0:
        return round(scaled / 8) * 8
    return round(scaled) | (value & 1)


def scale_source(source: str, factor: float, small: int = SMALL, least: int = LEAST) -> str:
    """`source` with the integers of its module-level assignments scaled."""
    edits: List[Tuple[int, int, int, str]] = []
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign):
            continue
        for node in _integers(statement.value):
            value = int(eval(compile(ast.Expression(node), "<constant>", "eval"), {}))
            scaled = scale_constant(value, factor, small, least)
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
    """Answers `{"source", "factor", "operations"}` or `{"error": sentence}`; `spec` is that of a
    Reference with `elements`, `operations` and `threads`."""
    torch.set_num_threads(int(spec.get("threads") or 1))
    fault = ""
    try:
        for small, least in ((SMALL, LEAST), (SMALLER, LEAST_OF_ALL)):
            previous = None
            for halvings in range(_HALVINGS):
                factor = 0.5**halvings
                source = scale_source(spec["source"], factor, small, least)
                if source == previous:
                    break
                previous = source
                trial = dict(spec, source=source)
                elements = input_elements(trial)
                if elements > spec["elements"]:
                    fault = f"{elements} elements of input at the smallest size"
                    continue
                done = operations(trial)
                if done <= spec["operations"]:
                    channel.send({"source": source, "factor": factor, "operations": done})
                    return
                fault = f"{done} operations at the smallest size"
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    channel.send({"error": fault.splitlines()[0][:300]})


def input_elements(spec: Dict[str, Any]) -> int:
    """Elements of all inputs, counted without making them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = reference_module.load(spec)
    with FakeTensorMode():
        given = module.get_inputs()
    return sum(leaf.numel() for leaf in tensor_tree.tensors(given))


def operations(spec: Dict[str, Any]) -> int:
    """What one forward of the Reference does: the floating-point operations of its contractions and
    convolutions, and `MOVED` for each element that an operator reads or writes. Counted on tensors
    without memory; where the code needs values, on real ones."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = reference_module.load(spec)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return _count(module, spec)
    except Exception:
        return _count(module, spec)


def _count(module: Any, spec: Dict[str, Any]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    model, inputs = reference_module.build(module, spec)
    moved = _Moved()
    with torch.no_grad(), FlopCounterMode(display=False) as floating, moved:
        model(*inputs)
    return int(floating.get_total_flops()) + MOVED * moved.elements


class _Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Elements of all tensors that operators read and write; a view moves none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = tensor_tree.tensors(result)
        if made and not func.is_view:
            read = tensor_tree.tensors([*args, *(kwargs or {}).values()])
            self.elements += sum(tensor.numel() for tensor in (*read, *made))
        return result
