"""The part of a module that some of its names need: transitively, in source order."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

from tree_sitter import Node

from musacoder_lsp.sites.document import Document
from musacoder_lsp.sites.reference.draft import Draft, reindented, string_lines
from musacoder_lsp.sites.reference.whole_file import absolute_module, absolute_modules
from musacoder_lsp.sites.reference.workspace import Workspace
from musacoder_lsp.sites.scoping import bound_at_top, free_names
from musacoder_lsp.sites.syntax import definition_of, field, text_of

_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}


class ModuleSlice:
    """Chooses statements of the module; `write` copies them."""

    def __init__(self, document: Document, root: Node, workspace: Workspace) -> None:
        self._document = document
        self._data = document.data
        self._workspace = workspace
        self._statements = [n for n in root.named_children if n.type != "comment"]
        self._binding: dict[str, list[int]] = {}
        self._chosen: set[int] = set()
        self._stars: list[int] = []
        for index, node in enumerate(self._statements):
            if _is_main_guard(node, self._data):
                continue
            if node.type == "future_import_statement" or self._sets_default_dtype(node):
                self._chosen.add(index)
                continue
            for name in bound_at_top(node, self._data):
                if name == "*":
                    self._stars.append(index)
                else:
                    self._binding.setdefault(name, []).append(index)

    def binds(self, name: str) -> bool:
        return name in self._binding

    @property
    def has_star(self) -> bool:
        return bool(self._stars)

    def need(self, names: Iterable[str]) -> set[str]:
        """Chooses what `names` need; gives those that nothing in the module binds."""
        unknown: set[str] = set()
        waiting = list(names)
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in self._binding:
                if name not in _BUILTINS:
                    unknown.add(name)
                continue
            for index in self._binding[name]:
                if index not in self._chosen:
                    self._chosen.add(index)
                    waiting += free_names(self._statements[index], self._data)
        if unknown and self._stars:
            self._chosen.update(self._stars)
            return set()
        return unknown

    def chosen_names(self) -> set[str]:
        return {
            name for name, indices in self._binding.items() if not self._chosen.isdisjoint(indices)
        }

    def write(self, draft: Draft) -> list[str]:
        """Copies the chosen statements; gives the modules that they import."""
        modules: list[str] = []
        previous: Node | None = None
        for index in sorted(self._chosen):
            node = self._statements[index]
            if previous is not None:
                draft.blank(_gap(previous, node))
            previous = node
            modules += self.write_statement(draft, node)
        return modules

    def write_statement(self, draft: Draft, node: Node, indent: str = "") -> list[str]:
        """Copies one statement with its imports made absolute."""
        document = self._document
        start, end = document.offset(node.start_byte), document.offset(node.end_byte)
        lines = reindented(document, start, end, indent, string_lines(node, document))
        modules: list[str] = []
        stack = [node]
        while stack:
            current = stack.pop()
            if current.type in ("import_statement", "import_from_statement"):
                modules += absolute_modules(current, self._data, self._workspace)
                module = field(current, "module_name")
                if module is not None and module.type == "relative_import":
                    line = document.line_of(document.offset(module.start_byte))
                    at = line - lines[0][1]
                    old = text_of(module, self._data)
                    text = lines[at][0]
                    new = absolute_module(old, self._workspace)
                    lines[at] = (_replace_module(text, old, new), line)
            else:
                stack.extend(current.named_children)
        draft.copy_lines(lines)
        return modules

    def _sets_default_dtype(self, node: Node) -> bool:
        if node.type != "expression_statement" or not node.named_child_count:
            return False
        call = node.named_children[0]
        function = field(call, "function") if call.type == "call" else None
        name = text_of(function, self._data) if function is not None else ""
        return name.endswith("set_default_dtype")


def _replace_module(text: str, old: str, new: str) -> str:
    head, keyword, tail = text.partition("from")
    spaces = tail[: len(tail) - len(tail.lstrip())]
    return head + keyword + (spaces or " ") + new + tail.lstrip().removeprefix(old)


def _gap(previous: Node, node: Node) -> int:
    if definition_of(node) is not None or definition_of(previous) is not None:
        return 2
    return 1 if previous.type.startswith("import") != node.type.startswith("import") else 0


def _is_main_guard(node: Node, data: bytes) -> bool:
    condition = field(node, "condition") if node.type == "if_statement" else None
    return condition is not None and "__name__" in text_of(condition, data)
