"""Static hints about a Candidate, with lines. A hint never condemns: run-time evidence does.

Regular expressions and syntax rules reject up to 45 % of honest kernels when used as verdicts.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Iterator, Optional

_LOADERS = {"load_inline", "load", "load_native"}
# Attributes of torch that arrange memory or make it; anything else called in forward computes.
_ARRANGING = """
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor device
    as_strided Size no_grad dtype is_tensor get_default_dtype arange from_numpy
"""
_QUIET = frozenset(_ARRANGING.split())


@dataclass(frozen=True)
class Hint:
    rule: str
    evidence: str
    line: int
    column: int = 1


def hints(source: str) -> list[Hint]:
    """All hints in order of lines; none for a source that does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    found = [*_class_hints(tree), *_extension_hints(tree)]
    return sorted(found, key=lambda hint: (hint.line, hint.column))


def model_new(tree: ast.Module) -> Optional[ast.ClassDef]:
    """The definition of ModelNew, the last one if there are several."""
    found = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"]
    return found[-1] if found else None


def _class_hints(tree: ast.Module) -> Iterator[Hint]:
    node = model_new(tree)
    if node is None:
        yield Hint("no-model-new", "no class ModelNew at the top level", 1)
        return
    for base in node.bases:
        if _dotted(base).split(".")[-1] in ("Model", "Reference"):
            yield Hint(
                "subclasses-model",
                f"ModelNew inherits {_dotted(base)}, whose forward it may fall back to",
                node.lineno,
                node.col_offset + 1,
            )
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "forward":
            yield from _forward_hints(method, _aliases(tree))


def _forward_hints(method: ast.FunctionDef, torch_names: dict[str, str]) -> Iterator[Hint]:
    for node in ast.walk(method):
        if isinstance(node, ast.Try):
            yield Hint(
                "try-except",
                "forward catches exceptions, perhaps to fall back to torch",
                node.lineno,
                node.col_offset + 1,
            )
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield Hint("torch-compute", "forward uses @", node.lineno, node.col_offset + 1)
        elif isinstance(node, ast.Call):
            name = _dotted(node.func)
            root, _, rest = name.partition(".")
            if root in torch_names and rest.split(".")[-1] not in _QUIET:
                full = f"{torch_names[root]}.{rest}" if rest else torch_names[root]
                yield Hint(
                    "torch-compute", f"forward calls {full}", node.lineno, node.col_offset + 1
                )
            elif name == "super.forward":
                yield Hint(
                    "subclasses-model",
                    "forward calls the forward that it inherits",
                    node.lineno,
                    node.col_offset + 1,
                )


def _extension_hints(tree: ast.Module) -> Iterator[Hint]:
    """An extension that is compiled into a name which nothing reads afterwards."""
    loads = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _loads(node)]
    if not loads:
        yield Hint("no-extension", "no load_inline, load or load_native call", 1)
        return
    read = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Expr) and statement.value in loads:
            yield _unused(statement.value)
        elif isinstance(statement, ast.Assign) and statement.value in loads:
            for target in statement.targets:
                used = (
                    target.id in read
                    if isinstance(target, ast.Name)
                    else not isinstance(target, ast.Attribute) or target.attr in attributes
                )
                if not used:
                    yield _unused(statement.value)


def _unused(node: ast.expr) -> Hint:
    evidence = "the extension is compiled and never used"
    return Hint("extension-unused", evidence, node.lineno, node.col_offset + 1)


def _loads(node: ast.Call) -> bool:
    return _dotted(node.func).split(".")[-1] in _LOADERS and not _dotted(node.func).startswith(
        ("torch.load", "json.", "pickle.", "np.", "numpy.")
    )


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Local name -> what it stands for, for everything of torch that this module imports."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.split(".")[0] == "torch":
                    names[item.asname or "torch"] = item.name if item.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for item in node.names:
                if item.name not in _LOADERS and item.name != "nn":
                    names[item.asname or item.name] = f"{node.module}.{item.name}"
    return names


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    return "?"
