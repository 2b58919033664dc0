"""The annotation comment that a Site still needs, ready to be filled in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tree_sitter import Node, Tree

from musacoder_lsp.sites import classes
from musacoder_lsp.sites.document import Document
from musacoder_lsp.sites.fragment import Fragment
from musacoder_lsp.sites.names import ModuleNames, bindings
from musacoder_lsp.sites.selection import Place, fragment_at
from musacoder_lsp.sites.signature import Parameter, parameters
from musacoder_lsp.sites.site import Site
from musacoder_lsp.sites.syntax import definition_at, parse

_SCALARS = ("int", "float", "bool", "str")


def annotation_template(site: Site, text: str, tree: Tree | None = None) -> tuple[int, str] | None:
    """Where to insert which lines, so that what `site.missing` names can be filled in.

    Each `?` stands for what a person must write; until then the Site names it as missing. None
    when nothing is missing, or the Site is no longer where it was.
    """
    if not site.missing:
        return None
    document = Document(text)
    root = (tree or parse(document)).root_node
    if site.kind in ("call", "selection"):
        names = ModuleNames(b for n in root.named_children for b in bindings(n, document.data))
        fragment = fragment_at(Place(document, root, names, lambda texts: ""), site)
        if not isinstance(fragment, Fragment):
            return None
        inputs: Sequence[Parameter] = parameters(fragment.enclosing.function, document.data)
        init: Sequence[Parameter] = fragment.init.parameters
        dimensions = {
            name
            for _, spec in fragment.inputs
            if spec is not None
            for name in fragment.annotations.unbound(spec)
        }
        local = {name for name, _ in fragment.inputs}
    else:
        found = definition_at(root, document.byte(site.start), document.byte(site.end))
        if found is None:
            return None
        inputs, init = _signatures(found[1], document.data)
        local = {parameter.name for parameter in inputs}
        dimensions = set(site.missing) - local - {parameter.name for parameter in init}
    lines = _lines(site.missing, inputs, init, local, dimensions)
    offset = document.line_start(site.header)
    line = text[offset : site.end]
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    newline = document.newline
    return offset, "".join(f"{indent}# musacoder: {line}{newline}" for line in lines)


def _signatures(
    definition: Node, data: bytes
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """Parameters of the call and of the constructor."""
    if definition.type == "function_definition":
        return parameters(definition, data), ()
    own = classes.methods(definition, data)
    found = [
        parameters(own[name].node, data)[1:] if name in own else ()
        for name in ("forward", "__init__")
    ]
    return found[0], found[1]


def _lines(
    missing: Iterable[str],
    inputs: Sequence[Parameter],
    init: Sequence[Parameter],
    local: set[str],
    dimensions: set[str],
) -> list[str]:
    annotations = {parameter.name: parameter.annotation for parameter in inputs}
    constructor = {p.name for p in init if p.default is None}
    given: list[str] = []
    first: list[str] = []
    for name in missing:
        if name in constructor:
            first.append(f"{name}=?")
        if name in dimensions:
            given.append(f"{name}=?")
        elif name in local:
            annotation = annotations.get(name) or ""
            given.append(f"{name}=?" if annotation in _SCALARS else f"{name}: f32[?]")
    lines = [f"init: {', '.join(first)}"] if first else []
    return [*lines, ", ".join(given)] if given else lines
