"""build_reference: from a Site to a self-contained Reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from musacoder_verifier.reference import Reference
from tree_sitter import Node, Tree

from musacoder_lsp.sites import classes
from musacoder_lsp.sites.comments import definition_comments
from musacoder_lsp.sites.document import Document, read_source
from musacoder_lsp.sites.names import ModuleNames, bindings
from musacoder_lsp.sites.reference.definition import DefinitionBuilder
from musacoder_lsp.sites.reference.draft import Draft
from musacoder_lsp.sites.reference.fragment import FragmentBuilder
from musacoder_lsp.sites.reference.module_slice import ModuleSlice
from musacoder_lsp.sites.reference.unbuildable import CannotBuild, Unbuildable
from musacoder_lsp.sites.reference.whole_file import write_whole_file
from musacoder_lsp.sites.reference.workspace import Read, Workspace
from musacoder_lsp.sites.selection import Place, fragment_at
from musacoder_lsp.sites.site import Refused, Site
from musacoder_lsp.sites.syntax import definition_at, parse
from musacoder_lsp.sites.workload import parse_annotations


def build_reference(
    site: Site,
    text: str,
    path: str | None,
    *,
    roots: Sequence[Path] = (),
    read: Read | None = None,
    tree: Tree | None = None,
) -> Reference | Unbuildable:
    """A Reference of the Site in the text that it was found in.

    `roots` are the workspace's folders and `read` gives the text of a file in them, None when there
    is none; by default the disk is read. `tree` spares a parse when the caller holds one.
    """
    document = Document(text)
    workspace = Workspace(path, roots, read or read_disk)
    draft = Draft(document, path)
    try:
        root = (tree or parse(document)).root_node
        modules, training = _write(draft, site, document, root, workspace)
    except CannotBuild as error:
        return error.result
    except RecursionError:
        return Unbuildable(f"{site.name} is nested too deeply to be taken apart.")
    imports = workspace.imports(modules)
    return Reference(
        draft.source,
        path,
        draft.origins,
        imports.roots,
        training,
        imports.digests,
        imports.notes,
    )


def read_disk(path: Path) -> str | None:
    try:
        return read_source(path).text
    except OSError:
        return None


def _write(
    draft: Draft, site: Site, document: Document, root: Node, workspace: Workspace
) -> tuple[list[str], bool]:
    if site.kind in ("call", "selection"):
        return _write_fragment(draft, site, document, root, workspace)
    found = definition_at(root, document.byte(site.start), document.byte(site.end))
    if found is None:
        raise CannotBuild(f"{site.name} is no longer where it was; wait for the next analysis.")
    outer, node = found
    if node.has_error:
        raise CannotBuild(f"{site.name} has a syntax error; correct it first.")
    if site.problem is not None and site.workload_origin != "get_inputs":
        raise CannotBuild(site.problem)
    if site.missing:
        raise CannotBuild(f"The Workload lacks {', '.join(site.missing)}.", site.missing)
    if site.workload_origin == "get_inputs":
        modules = write_whole_file(draft, site, document, root, node, workspace)
        return modules, _trains(outer, node, document.data)
    names = _names(root, document)
    builder = DefinitionBuilder(draft, site, document, outer, node)
    return builder.write(ModuleSlice(document, root, workspace), names)


def _names(root: Node, document: Document) -> ModuleNames:
    return ModuleNames(b for child in root.named_children for b in bindings(child, document.data))


def _write_fragment(
    draft: Draft, site: Site, document: Document, root: Node, workspace: Workspace
) -> tuple[list[str], bool]:
    place = Place(document, root, _names(root, document), lambda texts: "")
    fragment = fragment_at(place, site)
    if isinstance(fragment, Refused):
        raise CannotBuild(fragment.reason)
    builder = FragmentBuilder(draft, document, fragment)
    return builder.write(ModuleSlice(document, root, workspace))


def _trains(outer: Node, node: Node, data: bytes) -> bool:
    comments = definition_comments(outer, node, data)
    if node.type == "class_definition":
        for name, method in classes.methods(node, data).items():
            if name in ("forward", "__init__"):
                comments += definition_comments(method.outer, method.node, data)
    return parse_annotations(comments).training
