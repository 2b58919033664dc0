"""The native form: `extern "C" __global__` kernels, and in words what a compiler need not see.

    from musacoder_native import Function, Launch, load_native

    kernels = load_native(
        name="scaled",
        source=SOURCE,  # with extern "C" __global__ void scale(const float*, float*, float, int)
        functions={
            "scaled": Function(
                args=["x: float32[rows, columns]", "by: float"],
                outputs=["y: float32[rows, columns]"],
                launches=[
                    Launch("scale", args=["x", "y", "by", "rows * columns"],
                           grid="ceil_div(rows * columns, 256)", block=256),
                ],
            )
        },
    )
    y = kernels.scaled(x, 2.0)

A Candidate imports these names from `musacoder_native`. Here the description is read and checked,
so that what is wrong with it shows on the Candidate's own line; docs/native-form.md has the rules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

MODULE = "musacoder_native"
DTYPES = (
    "float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64",
    "bool",
)  # fmt: skip
_SCALARS = ("int", "float", "bool")
_ENTRY = re.compile(r"\s*([A-Za-z_]\w*)\s*:\s*(\w+)\s*(?:\[(.*)\])?\s*", re.DOTALL)
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}
_CALLS = {"min": "m", "max": "M", "ceil_div": "c"}

Size = Union[int, str]


class Launch:
    """One launch of `kernel`, on the current stream.

    `args`: the kernel's parameters in order, each the name of a tensor (its address), of a `float`
    argument, or an integer expression. `grid` and `block`: one to three integer expressions;
    `shared`: bytes of dynamic shared memory. A grid of size 0 launches nothing.
    """

    def __init__(
        self,
        kernel: str,
        args: Sequence[Size],
        grid: Union[Size, Sequence[Size]],
        block: Union[Size, Sequence[Size]],
        shared: Size = 0,
    ) -> None:
        self.kernel = kernel
        self.args = list(args)
        self.grid = grid
        self.block = block
        self.shared = shared


class Function:
    """What Python calls: its arguments, the tensors that it makes, and its launches in order.

    `args`: `"x: float32[rows, 64]"` is a contiguous tensor on the device, whose named sizes are
    known to all expressions, `"x: float32[*shape]"` one of any shape; `"k: int"`, `"a: float"`,
    `"f: bool"` are numbers. `scratch` and `outputs` are made uninitialised on the device of the
    first tensor; their sizes are integer expressions. One output is returned as it is, several as
    a tuple, none as None.
    """

    def __init__(
        self,
        args: Sequence[str],
        launches: Sequence[Launch],
        outputs: Sequence[str] = (),
        scratch: Sequence[str] = (),
    ) -> None:
        self.args = list(args)
        self.launches = list(launches)
        self.outputs = list(outputs)
        self.scratch = list(scratch)


def described(functions: Mapping[str, Function]) -> dict[str, Any]:
    """The functions as plain JSON values, in the form that `musacoder_verifier.lanes.native`
    takes. Raises ValueError and TypeError with one sentence."""
    if not isinstance(functions, Mapping) or not functions:
        raise TypeError("functions must map at least one name to a Function")
    found = {}
    for name, function in functions.items():
        if not isinstance(function, Function):
            raise TypeError(f"functions[{name!r}] must be a Function")
        if not str(name).isidentifier():
            raise ValueError(f"the function name {name!r} is not an identifier")
        try:
            found[str(name)] = _Reader().read(function)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


class _Reader:
    """Reads one Function. Integer variables are numbered: `v0` is the first one that is named."""

    def __init__(self) -> None:
        self._variables: list[str] = []
        self._tensors: dict[str, int] = {}  # arguments first, then scratch, then outputs
        self._inputs: dict[str, int] = {}  # tensors among the arguments
        self._floats: dict[str, int] = {}
        self._shapes: dict[str, int] = {}  # *name -> the argument that has this shape first

    def read(self, function: Function) -> dict[str, Any]:
        args = [self._argument(text, index) for index, text in enumerate(function.args)]
        if not self._tensors:
            raise ValueError("at least one argument must be a tensor: it decides on the device")
        made = [*function.scratch, *function.outputs]
        allocated = [self._made(text, len(args) + i) for i, text in enumerate(made)]
        return {
            "variables": len(self._variables),
            "args": args,
            "made": allocated,
            "outputs": len(function.outputs),
            "launches": [self._launch(launch) for launch in function.launches],
        }

    def _argument(self, text: str, index: int) -> dict[str, Any]:
        name, kind, sizes = _entry(text)
        self._new(name)
        if sizes is None:
            if kind not in _SCALARS:
                raise ValueError(f"{text!r}: a number is one of {', '.join(_SCALARS)}")
            if kind == "float":
                self._floats[name] = index
                return {"name": name, "kind": "float"}
            return {"name": name, "kind": kind, "variable": self._variable(name)}
        self._tensors[name] = self._inputs[name] = index
        whole = _whole_shape(sizes)
        if whole is not None:
            like = self._shapes.setdefault(whole, index)
            return {"name": name, "kind": "tensor", "dtype": kind, "like": like}
        dims: list[Union[int, str]] = []
        for part in _parts(sizes):
            if part.isdigit():
                dims.append(int(part))
            elif part.isidentifier() and part not in self._floats:
                dims.append(f"v{self._variable(part)}")
            else:
                raise ValueError(f"{text!r}: {part!r} is neither a number nor a name")
        return {"name": name, "kind": "tensor", "dtype": kind, "dims": dims}

    def _made(self, text: str, index: int) -> dict[str, Any]:
        name, kind, sizes = _entry(text)
        if sizes is None:
            raise ValueError(f"{text!r}: a tensor that is made needs its sizes in brackets")
        self._new(name)
        whole = _whole_shape(sizes)
        if whole is not None:
            if whole not in self._shapes:
                raise ValueError(f"{text!r}: no argument has the shape *{whole}")
            result = {"name": name, "dtype": kind, "like": self._shapes[whole]}
        else:
            dims = [self._expression(part) for part in _parts(sizes)]
            result = {"name": name, "dtype": kind, "dims": dims}
        self._tensors[name] = index
        return result

    def _new(self, name: str) -> None:
        if name in self._tensors or name in self._floats:
            raise ValueError(f"{name} is declared twice")

    def _variable(self, name: str) -> int:
        if name in self._tensors:
            raise ValueError(f"{name} is a tensor and a number")
        if name not in self._variables:
            self._variables.append(name)
        return self._variables.index(name)

    def _launch(self, launch: Launch) -> dict[str, Any]:
        if not isinstance(launch, Launch):
            raise ValueError("launches must hold Launch objects")
        if not str(launch.kernel).isidentifier():
            raise ValueError(f"the kernel name {launch.kernel!r} is not an identifier")
        return {
            "kernel": str(launch.kernel),
            "args": [self._parameter(item) for item in launch.args],
            "grid": self._three(launch.grid, "grid"),
            "block": self._three(launch.block, "block"),
            "shared": self._expression(launch.shared),
        }

    def _parameter(self, item: Size) -> dict[str, Any]:
        if isinstance(item, str):
            name = item.strip()
            if name in self._tensors:
                return {"tensor": self._tensors[name]}
            if name in self._floats:
                return {"float": self._floats[name]}
        return {"integer": self._expression(item)}

    def _three(self, sizes: Union[Size, Sequence[Size]], what: str) -> list[list[str]]:
        given = [sizes] if isinstance(sizes, (int, str)) else list(sizes)
        if not 1 <= len(given) <= 3:
            raise ValueError(f"a {what} has one to three sizes, not {len(given)}")
        return [self._expression(size) for size in [*given, 1, 1][:3]]

    def _expression(self, text: Size) -> list[str]:
        """In postfix order: numbers, variables `v0`, element counts `n0` of arguments, and the
        operators + - * / % (as Python's // and %), m M (least, greatest), c (ceil_div), ~ (minus).
        """
        try:
            tree = ast.parse(str(text).strip(), mode="eval").body
            return self._postfix(tree)
        except (SyntaxError, ValueError, RecursionError) as error:
            if isinstance(error, ValueError) and str(error).startswith("'"):
                raise ValueError(f"{error!s} in {str(text)!r}") from None
            raise ValueError(f"{str(text)!r} is not an integer expression") from None

    def _postfix(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            if node.value >= 1 << 63:
                raise ValueError(f"'{node.value}' does not fit 64 bits")
            return [str(node.value)]
        if isinstance(node, ast.Name):
            if node.id not in self._variables:
                raise ValueError(f"'{node.id}' is not the name of a size or an int argument")
            return [f"v{self._variables.index(node.id)}"]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return [*self._postfix(node.operand), "~"]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            operator = _OPERATORS[type(node.op)]
            return [*self._postfix(node.left), *self._postfix(node.right), operator]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._called(node.func.id, node.args)
        raise ValueError("not an integer expression")

    def _called(self, name: str, arguments: list[ast.expr]) -> list[str]:
        if name == "numel" and len(arguments) == 1 and isinstance(arguments[0], ast.Name):
            tensor = arguments[0].id
            if tensor not in self._inputs:
                raise ValueError(f"'{tensor}' is not a tensor among the arguments")
            return [f"n{self._inputs[tensor]}"]
        if name not in _CALLS or len(arguments) < 2 or (name == "ceil_div" and len(arguments) > 2):
            raise ValueError(f"'{name}' is not min, max, ceil_div(a, b) or numel(tensor)")
        result = self._postfix(arguments[0])
        for argument in arguments[1:]:
            result += [*self._postfix(argument), _CALLS[name]]
        return result


def _entry(text: str) -> tuple[str, str, Optional[str]]:
    found = _ENTRY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f'{text!r} is not of the form "name: float32[sizes]" or "name: int"')
    name, kind, sizes = found.groups()
    if sizes is not None and kind not in DTYPES:
        raise ValueError(f"{text!r}: the element type is one of {', '.join(DTYPES)}")
    return name, kind, sizes


def _whole_shape(sizes: str) -> Optional[str]:
    text = sizes.strip()
    return text[1:].strip() if text.startswith("*") and text[1:].strip().isidentifier() else None


def _parts(sizes: str) -> list[str]:
    """Split at the commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in sizes:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    stripped = [part.strip() for part in parts]
    return stripped[:-1] if not stripped[-1] else stripped
