"""Reference from a call or a selection inside a function."""

from __future__ import annotations

from tree_sitter import Node

from musacoder_lsp.sites.document import Document
from musacoder_lsp.sites.fragment import Fragment
from musacoder_lsp.sites.reference.definition import Argument, value_names, write_inputs
from musacoder_lsp.sites.reference.draft import Draft
from musacoder_lsp.sites.reference.module_slice import ModuleSlice
from musacoder_lsp.sites.reference.unbuildable import CannotBuild
from musacoder_lsp.sites.scoping import free_names
from musacoder_lsp.sites.signature import Parameter
from musacoder_lsp.sites.syntax import ancestors, definition_of, field, text_of, walk

_BODY = " " * 8


class FragmentBuilder:
    def __init__(self, draft: Draft, document: Document, fragment: Fragment) -> None:
        self._draft = draft
        self._document = document
        self._data = document.data
        self._fragment = fragment
        self._self = fragment.enclosing.self_text or "self"

    def write(self, module: ModuleSlice) -> tuple[list[str], bool]:
        """Writes the Reference; gives the imported modules and whether it runs in train mode."""
        fragment = self._fragment
        if fragment.annotations.problems:
            problem = fragment.annotations.problems[0]
            raise CannotBuild(f"Line {problem.line + 1}: {problem.message}")
        if fragment.missing:
            names = ", ".join(fragment.missing)
            raise CannotBuild(f"The Workload lacks {names}.", fragment.missing)
        base = self._need(module)
        modules = module.write(self._draft)
        draft = self._draft
        if not module.binds("torch"):
            draft.blank(1)
            draft.write("import torch")
        draft.blank(2)
        draft.write(f"class Model({base}):")
        given = self._write_init(module, modules)
        inputs = tuple(
            Argument(name, spec, name) for name, spec in fragment.inputs if spec is not None
        )
        listed = "".join(f", {argument.name}" for argument in inputs)
        draft.write(f"    def forward({self._self}{listed}):")
        for name, text in fragment.constants:
            draft.write(f"{_BODY}{name} = {text}")
        for statement in fragment.prelude:
            modules += module.write_statement(draft, statement, _BODY)
        self._write_body(module, modules)
        write_inputs(draft, given, inputs, fragment.annotations)
        return modules, fragment.annotations.training

    def _need(self, module: ModuleSlice) -> str:
        """Chooses what the fragment needs of the module; gives the base class of `Model`."""
        fragment = self._fragment
        needed = set(fragment.module_names) | value_names(fragment.annotations) | {"torch"}
        for parameter in fragment.init.parameters:
            node = self._default(parameter)
            if node is not None:
                needed |= free_names(node, self._data).keys()
        base = "torch.nn.Module"
        if fragment.whole_class:
            base = self._top_class()
            needed.add(base.partition(".")[0])
        module.need(needed)
        # A subclass of the same name still finds its base: the name is read before it is bound.
        if "Model" in module.chosen_names() and base != "Model":
            raise CannotBuild("The selection needs a `Model` of this file; rename that class.")
        return base

    def _default(self, parameter: Parameter) -> Node | None:
        owner = self._fragment.enclosing.owner
        if owner is None or parameter.default is None:
            return None
        for node in walk(owner):
            name = field(node, "name") if node.type.endswith("default_parameter") else None
            if name is not None and text_of(name, self._data) == parameter.name:
                return field(node, "value")
        return None

    def _top_class(self) -> str:
        owner = self._fragment.enclosing.owner
        if owner is None:
            return "torch.nn.Module"
        parts: list[str] = []
        for node in (owner, *ancestors(owner)):
            if node.type == "function_definition":
                raise CannotBuild("The selection uses `self` of a class inside a function.")
            if definition_of(node) is not None and node.type == "class_definition":
                name = field(node, "name")
                parts.append(text_of(name, self._data) if name is not None else "")
        return ".".join(reversed(parts))

    def _write_init(self, module: ModuleSlice, modules: list[str]) -> tuple[Argument, ...]:
        fragment, draft = self._fragment, self._draft
        specs = fragment.annotations.init
        given = [p for p in fragment.init.parameters if p.name in specs]
        by_default = [
            p for p in fragment.init.parameters if p.name not in specs and p.default is not None
        ]
        arguments = tuple(Argument(p.name, specs[p.name], p.name) for p in given)
        names = [p.name for p in given]
        if fragment.whole_class:
            listed = "".join(f", {name}" for name in names)
            passed = ", ".join(f"{name}={name}" for name in names)
            draft.write(
                f"    def __init__({self._self}{listed}):",
                f"{_BODY}super().__init__({passed})",
                "",
            )
        elif fragment.init.statements:
            names += [f"{p.name}={p.default}" for p in by_default]
            init_self = self._init_self()
            listed = "".join(f", {name}" for name in names)
            draft.write(f"    def __init__({init_self}{listed}):", f"{_BODY}super().__init__()")
            for statement in fragment.init.statements:
                modules += module.write_statement(draft, statement, _BODY)
            draft.write("")
        return arguments

    def _init_self(self) -> str:
        statement: Node | None = self._fragment.init.statements[0]
        while statement is not None and statement.type != "function_definition":
            statement = statement.parent
        parameters = field(statement, "parameters") if statement is not None else None
        first = parameters.named_children[0] if parameters is not None else None
        return text_of(first, self._data) if first is not None else self._self

    def _write_body(self, module: ModuleSlice, modules: list[str]) -> None:
        fragment, draft = self._fragment, self._draft
        if fragment.is_expression:
            draft.write(f"{_BODY}return (")
            draft.copy(fragment.nodes[0], _BODY + "    ")
            draft.write(f"{_BODY})")
            return
        for node in fragment.nodes:
            modules += module.write_statement(draft, node, _BODY)
        if fragment.outputs:
            draft.write(f"{_BODY}return {', '.join(fragment.outputs)}")
