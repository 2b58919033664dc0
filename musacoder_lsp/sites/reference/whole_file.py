"""Reference from a file that has `get_inputs`: the whole file, line by line."""

from __future__ import annotations

import re

from tree_sitter import Node

from musacoder_lsp.sites.document import Document
from musacoder_lsp.sites.reference.draft import Draft
from musacoder_lsp.sites.reference.unbuildable import CannotBuild
from musacoder_lsp.sites.reference.workspace import Workspace, imported_modules
from musacoder_lsp.sites.signature import parameters
from musacoder_lsp.sites.site import Site
from musacoder_lsp.sites.syntax import field, text_of, walk

_CODING = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+")


def write_whole_file(
    draft: Draft, site: Site, document: Document, root: Node, function: Node, workspace: Workspace
) -> list[str]:
    """Writes the file and what it lacks of KernelBench's convention; gives the imported modules.

    `function` is the class or function of the Site.
    """
    replaced, modules = absolute_imports(document, root, workspace)
    lines: list[tuple[str, int]] = []
    for line in range(len(document.line_starts)):
        text = replaced.get(line, document.line_text(line))
        if not line:
            text = text.removeprefix("\ufeff")
        if line < 2:
            # The Reference is written as UTF-8, whatever the user's file is.
            text = _CODING.sub(r"\1utf-8", text)
        lines.append((text, line))
    draft.copy_lines(lines)
    names = {n for child in root.named_children for n in _defined(child, document.data)}
    if site.kind == "function":
        draft.blank(2)
        write_call_wrapper(draft, site.name, function, document.data)
    elif site.name != "Model":
        draft.blank(2)
        draft.write(f"Model = {site.name}")
    if "get_init_inputs" not in names:
        draft.blank(2)
        draft.write("def get_init_inputs():", "    return []")
    return modules


def write_call_wrapper(draft: Draft, name: str, function: Node, data: bytes) -> None:
    """`Model` whose `forward` passes its inputs on to a function of the file."""
    taken = [p.name for p in parameters(function, data) if p.kind == "positional"]
    given = "*inputs" if len(taken) != 1 else taken[0]
    draft.write(
        *(["import torch", "", ""]),
        "class Model(torch.nn.Module):",
        f"    def forward(self, {given}):",
        f"        return {name}({given})",
    )


def _defined(node: Node, data: bytes) -> list[str]:
    name = field(node, "name") if node.type == "function_definition" else None
    return [text_of(name, data)] if name is not None else []


def absolute_imports(
    document: Document, root: Node, workspace: Workspace
) -> tuple[dict[int, str], list[str]]:
    """Lines whose relative import is made absolute, and all modules that the file imports."""
    replaced: dict[int, str] = {}
    modules: list[str] = []
    for node in walk(root):
        if node.type not in ("import_statement", "import_from_statement"):
            continue
        modules += absolute_modules(node, document.data, workspace)
        module = field(node, "module_name")
        if module is not None and module.type == "relative_import":
            start = document.offset(module.start_byte)
            end = document.offset(module.end_byte)
            line = document.line_of(start)
            begin = document.line_starts[line]
            text = replaced.get(line, document.line_text(line))
            # Several imports on one line: the offsets of the later ones still hold from the end.
            tail = len(document.line_text(line)) - (end - begin)
            head = len(text) - tail - (end - start)
            new = absolute_module(text_of(module, document.data), workspace)
            replaced[line] = text[:head] + new + text[len(text) - tail :]
    return replaced, modules


def absolute_module(module: str, workspace: Workspace) -> str:
    absolute = workspace.absolute(module)
    if absolute is None:
        raise CannotBuild(
            f"The relative import of `{module}` leads out of every package; "
            "open the folder that holds the package, or import it by its full name."
        )
    return absolute


def absolute_modules(node: Node, data: bytes, workspace: Workspace) -> list[str]:
    found = (workspace.absolute(module) for module in imported_modules(node, data))
    return [module for module in found if module is not None]
