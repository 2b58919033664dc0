"""The Python module around a generated source: KernelBench's form, with the Reference's own
constructor, so that seeds, constants and state_dict names match."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from musacoder_inference.engines.synth.from_graph.builder import attribute
from musacoder_inference.engines.synth.ir import NotCovered, Program

_HEADER = """\
# Written by synth: rules, no model.
# {backend} kernels for one set of shapes; another one is refused."""


def wrap(
    reference: str,
    graph: Mapping[str, Any],
    program: Program,
    described: Sequence[tuple[str, str | None]],
    load: str,
    backend: str,
    loader: str = "from torch.utils.cpp_extension import load_inline",
) -> str:
    """The Candidate's text. `load` is the Python text that compiles the source and binds it to
    `_kernels`, by what the statement `loader` imports; `described` says what each result is (see
    `read_graph`)."""
    try:
        tree = ast.parse(reference)
    except SyntaxError as error:
        raise NotCovered(f"the Reference does not parse: {error.msg}") from error
    model = _model_class(tree)
    lines = reference.splitlines()
    imports, kept = _kept_statements(tree, model, lines)
    forward = _forward(graph, program, described, _forward_parameters(model))
    body = _class(model, lines, forward)
    imports.append(loader)
    head = [_HEADER.format(backend=backend), *imports, *kept]
    return "\n".join([*head, "", load, "", "", *body, ""])


def _model_class(tree: ast.Module) -> ast.ClassDef:
    """The class behind the name `Model`, which may be an alias, as in `Model = Net`."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    aliases = {
        target.id: node.value.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = classes.get(aliases.get("Model", "Model"))
    if found is None:
        raise NotCovered("a class that is not defined in this file is not covered by synth")
    return found


def _segment(node: ast.stmt, lines: Sequence[str]) -> list[str]:
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(d.lineno for d in decorators)])
    return list(lines[start - 1 : node.end_lineno])


def _names_used(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _names_bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _kept_statements(
    tree: ast.Module, model: ast.ClassDef, lines: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Imports, and what else the constructor needs, in the Reference's own order."""
    needed: set[str] = {"torch", "nn"}
    methods = _methods_to_keep(model)
    for base in [*model.bases, *model.decorator_list]:
        needed |= _names_used(base)
    for member in model.body:
        if not isinstance(member, ast.FunctionDef) or member.name in methods:
            needed |= _names_used(member)
    others = [n for n in tree.body if n is not model]
    chosen: set[int] = set()
    changed = True
    while changed:
        changed = False
        for position, node in enumerate(others):
            if position not in chosen and _names_bound(node) & needed:
                chosen.add(position)
                needed |= _names_used(node)
                changed = True
    imports: list[str] = []
    kept: list[str] = []
    for node in others:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            imports += _segment(node, lines)
    for position, node in enumerate(others):
        if position not in chosen:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports += _segment(node, lines)
            continue
        kept += ["", ""] if isinstance(node, ast.FunctionDef | ast.ClassDef) or not kept else []
        kept += _segment(node, lines)
    if not any(line.strip() == "import torch" for line in imports):
        imports.append("import torch")
    return imports, kept


def _methods_to_keep(model: ast.ClassDef) -> set[str]:
    """`__init__` and what it calls on self."""
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    kept: set[str] = set()
    waiting = ["__init__"]
    while waiting:
        name = waiting.pop()
        if name in kept or name not in methods or name == "forward":
            continue
        kept.add(name)
        waiting += [n.attr for n in ast.walk(methods[name]) if isinstance(n, ast.Attribute)]
    return kept


def _forward_parameters(model: ast.ClassDef) -> tuple[str, list[str]]:
    """The text of forward's parameter list and the parameters' names without self."""
    for member in model.body:
        if isinstance(member, ast.FunctionDef) and member.name == "forward":
            arguments = member.args
            if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
                raise NotCovered("forward with *args or **kwargs is not covered by synth")
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
            for a in (*arguments.posonlyargs, *arguments.args):
                a.annotation = None
            return ast.unparse(arguments), names[1:]
    raise NotCovered("a Model whose forward is inherited is not covered by synth")


def _class(model: ast.ClassDef, lines: Sequence[str], forward: Sequence[str]) -> list[str]:
    bases = ", ".join(ast.unparse(b) for b in model.bases)
    result = [f"class ModelNew({bases}):"]
    methods = _methods_to_keep(model)
    for member in model.body:
        if isinstance(member, ast.FunctionDef) and member.name not in methods:
            continue
        if isinstance(member, ast.Expr) and isinstance(member.value, ast.Constant):
            continue
        result += [_renamed(line, model.name) for line in _segment(member, lines)]
        result.append("")
    return [*result, *forward]


def _renamed(line: str, name: str) -> str:
    return re.sub(rf"\bsuper\(\s*{name}\s*,", "super(ModelNew,", line)


def _forward(
    graph: Mapping[str, Any],
    program: Program,
    described: Sequence[tuple[str, str | None]],
    parameters: tuple[str, list[str]],
) -> list[str]:
    signature, names = parameters
    user = [e for e in graph["inputs"] if e["kind"] == "input"]
    if len(user) > len(names):
        raise NotCovered("an input that is itself a list or dict is not covered by synth")
    by_graph_name = {e["name"]: names[e["position"]] for e in user}
    lines = []
    if graph.get("mode_sensitive"):
        mode = "training" if graph["training"] else "eval"
        test = "not self.training" if graph["training"] else "self.training"
        lines += [
            f"if {test}:",
            f'    raise RuntimeError("this kernel is written for {mode} mode")',
        ]
    for entry in user:
        if "shape" not in entry and entry.get("value") is not None:
            name = by_graph_name[entry["name"]]
            lines += [
                f"if {name} != {entry['value']!r}:",
                f'    raise RuntimeError("this kernel is written for {name} = {entry["value"]!r}")',
            ]
    arguments = [f"{by_graph_name.get(a.source, a.source)}.contiguous()" for a in program.arguments]
    call = f"_kernels.forward({', '.join(arguments)})"
    if len(call) > 80:
        call = "_kernels.forward(\n" + "".join(f"    {a},\n" for a in arguments) + ")"
    several = len(described) != 1
    lines += (f"results = {call}" if several else f"result = {call}").splitlines()
    value = iter([f"results[{i}]" for i in range(len(described))] if several else ["result"])
    shown: list[str] = []
    for kind, target in described:
        text = next(value)
        if kind == "output":
            shown.append(text)
        elif kind == "buffer":
            assert target is not None
            lines.append(f"{attribute(target)}.copy_({text})")
        else:
            lines.append(f"{by_graph_name[str(target)]}.copy_({text})")
    lines.append(f"return {_nested(graph['output_spec'], shown)}")
    return [f"    def forward({signature}):", *("        " + line for line in lines)]


def _nested(spec: Mapping[str, Any], shown: Sequence[str]) -> str:
    if "leaf" in spec:
        return shown[int(spec["leaf"])]
    children = [_nested(c, shown) for c in spec["children"]]
    if spec["type"] == "dict":
        pairs = zip(spec["keys"], children, strict=True)
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in pairs) + "}"
    if spec["type"] == "list":
        return f"[{', '.join(children)}]"
    return f"({', '.join(children)}{',' if len(children) == 1 else ''})"
