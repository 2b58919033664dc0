"""Reference from a class or function of an ordinary file, with an annotated Workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites import classes
from musacoder_lsp.sites.comments import definition_comments
from musacoder_lsp.sites.discover import missing_inputs, required
from musacoder_lsp.sites.document import Document
from musacoder_lsp.sites.names import ModuleNames, base_names, bindings
from musacoder_lsp.sites.reference.draft import Draft
from musacoder_lsp.sites.reference.module_slice import ModuleSlice
from musacoder_lsp.sites.reference.unbuildable import CannotBuild
from musacoder_lsp.sites.reference.values import made
from musacoder_lsp.sites.scoping import assigned_names, free_names
from musacoder_lsp.sites.signature import Parameter, parameters
from musacoder_lsp.sites.site import Site
from musacoder_lsp.sites.syntax import ancestors, field, text_of
from musacoder_lsp.sites.workload import (
    Annotations,
    ListSpec,
    Spec,
    ValueSpec,
    jaxtyping_spec,
    parse_annotations,
)


@dataclass(frozen=True, slots=True)
class Argument:
    """How one input is passed on: `x`, `*xs`, `scale=scale`."""

    name: str
    spec: Spec
    passed: str


class DefinitionBuilder:
    def __init__(
        self, draft: Draft, site: Site, document: Document, outer: Node, node: Node
    ) -> None:
        self._draft = draft
        self._site = site
        self._document = document
        self._data = document.data
        self._outer = outer
        self._node = node

    def write(self, module: ModuleSlice, names: ModuleNames) -> tuple[list[str], bool]:
        """Writes the Reference; gives the imported modules and whether it runs in train mode."""
        if self._site.kind == "module":
            return self._write_class(module, names)
        return self._write_function(module)

    # Classes ---------------------------------------------------------------------------------

    def _write_class(self, module: ModuleSlice, names: ModuleNames) -> tuple[list[str], bool]:
        chain = self._class_chain(names)
        annotations = parse_annotations(self._class_comments(chain))
        forward = self._method(chain, "forward")
        init = self._method(chain, "__init__")
        if forward is None:
            raise CannotBuild(
                f"{self._site.name} has no `forward` in this file, so its inputs are not known."
            )
        inputs = arguments(parameters(forward.node, self._data)[1:], annotations)
        init_parameters = parameters(init.node, self._data)[1:] if init is not None else ()
        given = init_arguments(init_parameters, annotations)
        enclosing = self._enclosing_function()
        modules = self._write_source(module, enclosing, annotations, {"Model"})
        draft = self._draft
        name = self._site.name.rpartition("<locals>.")[2]
        by_position = all(a.passed == a.name for a in inputs)
        init_by_position = all(a.passed == a.name for a in given)
        draft.blank(2)
        if by_position and init_by_position:
            if name != "Model":
                draft.write(f"Model = {name}")
        else:
            draft.write(f"class {'Model' if name != 'Model' else 'Wrapped'}({name}):")
            if not init_by_position:
                listed = ", ".join(argument.name for argument in given)
                passed = ", ".join(argument.passed for argument in given)
                draft.write(
                    f"    def __init__(self, {listed}):", f"        super().__init__({passed})"
                )
            if not by_position:
                listed = ", ".join(argument.name for argument in inputs)
                passed = ", ".join(argument.passed for argument in inputs)
                draft.write(
                    f"    def forward(self, {listed}):", f"        return super().forward({passed})"
                )
            if name == "Model":
                draft.blank(2)
                draft.write("Model = Wrapped")
        write_inputs(draft, given, inputs, annotations)
        return modules, annotations.training

    def _class_chain(self, names: ModuleNames) -> list[tuple[Node, Node]]:
        """The class and its bases in this file, nearest first."""
        tops = {}
        root = list(ancestors(self._node))[-1]
        for child in root.named_children:
            for binding in bindings(child, self._data):
                if binding.bases is not None:
                    tops[binding.name] = (child, field(child, "definition") or child)
        chain = [(self._outer, self._node)]
        seen = {self._node.id}
        for _, node in chain:
            for base in base_names(node, self._data):
                dotted = names.resolve(base) or ""
                found = tops.get(dotted[1:]) if dotted.startswith("@") else None
                if found is not None and found[1].id not in seen:
                    seen.add(found[1].id)
                    chain.append(found)
        return chain

    def _method(self, chain: Sequence[tuple[Node, Node]], name: str) -> classes.Method | None:
        for _, node in chain:
            method = classes.methods(node, self._data).get(name)
            if method is not None:
                return method
        return None

    def _class_comments(self, chain: Sequence[tuple[Node, Node]]) -> list:  # type: ignore[type-arg]
        comments = []
        for outer, node in reversed(chain[:1]):
            comments += definition_comments(outer, node, self._data)
            own = classes.methods(node, self._data)
            for name in ("forward", "__init__"):
                if name in own:
                    comments += definition_comments(own[name].outer, own[name].node, self._data)
        return comments

    # Functions -------------------------------------------------------------------------------

    def _write_function(self, module: ModuleSlice) -> tuple[list[str], bool]:
        owner = self._owner_class()
        static = self._outer != self._node and b"staticmethod" in self._header()
        bound = owner is not None and not static
        comments = definition_comments(self._outer, self._node, self._data)
        if owner is not None:
            comments = definition_comments(owner[0], owner[1], self._data) + comments
        annotations = parse_annotations(comments)
        inputs = arguments(parameters(self._node, self._data)[1 if bound else 0 :], annotations)
        given: tuple[Argument, ...] = ()
        if owner is not None and bound and b"classmethod" not in self._header():
            init = classes.methods(owner[1], self._data).get("__init__")
            init_parameters = parameters(init.node, self._data)[1:] if init is not None else ()
            given = init_arguments(init_parameters, annotations)
        modules = self._write_source(module, self._enclosing_function(), annotations, {"Model"})
        self._write_wrapper(owner, given, inputs, bound)
        write_inputs(self._draft, given, inputs, annotations)
        return modules, annotations.training

    def _header(self) -> bytes:
        return self._data[self._outer.start_byte : self._node.start_byte]

    def _write_wrapper(
        self,
        owner: tuple[Node, Node] | None,
        given: Sequence[Argument],
        inputs: Sequence[Argument],
        bound: bool,
    ) -> None:
        draft = self._draft
        called = self._site.name.rpartition("<locals>.")[2]
        owner_name, _, method = called.rpartition(".")
        instance = owner is not None and bound and b"classmethod" not in self._header()
        draft.blank(2)
        draft.write("class Model(torch.nn.Module):")
        if instance:
            listed = "".join(f", {argument.name}" for argument in given)
            passed = ", ".join(argument.passed for argument in given)
            draft.write(
                f"    def __init__(self{listed}):",
                "        super().__init__()",
                f"        self.owner = {owner_name}({passed})",
                "",
            )
            called = f"self.owner.{method}"
        listed = "".join(f", {argument.name}" for argument in inputs)
        passed = ", ".join(argument.passed for argument in inputs)
        draft.write(f"    def forward(self{listed}):", f"        return {called}({passed})")

    def _owner_class(self) -> tuple[Node, Node] | None:
        for node in ancestors(self._node):
            if node.type == "class_definition":
                parent = node.parent
                outer = parent if parent is not None and parent.type.startswith("dec") else node
                return outer, node
            if node.type == "function_definition":
                return None
        return None

    # Both ------------------------------------------------------------------------------------

    def _enclosing_function(self) -> Node | None:
        for node in ancestors(self._node):
            if node.type == "function_definition":
                return node
        return None

    def _write_source(
        self,
        module: ModuleSlice,
        enclosing: Node | None,
        annotations: Annotations,
        reserved: set[str],
    ) -> list[str]:
        """Copies the definition and what it needs."""
        draft = self._draft
        top = self._site.name.partition(".")[0]
        if enclosing is None:
            needed = {top}
        else:
            needed = set(free_names(self._outer, self._data))
            self._refuse_closure(enclosing, needed)
        needed |= value_names(annotations)
        module.need(needed)
        clash = (module.chosen_names() - {top}) & reserved
        if clash or (self._site.kind == "function" and top in reserved):
            raise CannotBuild(
                f"{self._site.name} needs another `Model` of this file; rename one of the two."
            )
        if "torch" not in module.chosen_names():
            module.need({"torch"})
        modules = module.write(draft)
        if not module.binds("torch"):
            draft.blank(1)
            draft.write("import torch")
        if enclosing is not None:
            draft.blank(2)
            modules += module.write_statement(draft, self._outer)
        return modules

    def _refuse_closure(self, enclosing: Node, needed: set[str]) -> None:
        local = {p.name for p in parameters(enclosing, self._data)}
        body = field(enclosing, "body")
        local |= assigned_names(body, self._data) if body is not None else set()
        name = field(self._node, "name")
        used = sorted(needed & local - ({text_of(name, self._data)} if name else set()))
        if used:
            raise CannotBuild(
                f"{self._site.name} uses `{used[0]}` of the function around it; "
                "make it an argument, or move the definition to the top of the file."
            )


def value_names(annotations: Annotations) -> set[str]:
    """Names that the values of annotations use, such as a constant of the module."""
    texts = [*annotations.values.values()]
    texts += [spec.text for spec in annotations.init.values() if isinstance(spec, ValueSpec)]
    names = {text.partition(".")[0] for text in texts}
    return {name for name in names if name.isidentifier()} - {"True", "False", "None"}


def arguments(signature: Iterable[Parameter], annotations: Annotations) -> tuple[Argument, ...]:
    """The inputs of a call in order; CannotBuild names those that no annotation gives."""
    signature = tuple(signature)
    missing = missing_inputs(signature, annotations)
    if missing:
        raise CannotBuild(f"The Workload lacks {', '.join(missing)}.", tuple(missing))
    found: list[Argument] = []
    skipped = False
    for parameter in signature:
        spec = annotations.spec(parameter.name) or jaxtyping_spec(parameter.annotation)
        name = parameter.name
        if spec is None:
            skipped = skipped or parameter.kind == "positional"
        elif parameter.kind == "*":
            if not isinstance(spec, ListSpec):
                raise CannotBuild(f"`*{name}` takes a list, as in `{name}: [f32[8], f32[8]]`.")
            found.append(Argument(name, spec, f"*{name}"))
        elif parameter.kind == "keyword" or skipped:
            found.append(Argument(name, spec, f"{name}={name}"))
        else:
            found.append(Argument(name, spec, name))
    return tuple(found)


def init_arguments(
    signature: Sequence[Parameter], annotations: Annotations
) -> tuple[Argument, ...]:
    given = Annotations(annotations.init, {}, {}, None)
    missing = [p.name for p in signature if required(p) and p.name not in given.inputs]
    if missing:
        raise CannotBuild(f"The constructor lacks {', '.join(missing)}.", tuple(missing))
    return arguments([Parameter(p.name, p.kind, None, p.default) for p in signature], given)


def write_inputs(
    draft: Draft,
    given: Sequence[Argument],
    inputs: Sequence[Argument],
    annotations: Annotations,
) -> None:
    """`get_init_inputs` and `get_inputs`."""
    try:
        init_texts = [made(argument.spec, annotations.values) for argument in given]
        texts = [made(argument.spec, annotations.values) for argument in inputs]
    except ValueError as error:
        raise CannotBuild(f"The annotation is wrong: {error}.") from None
    draft.blank(2)
    draft.write("def get_init_inputs():", f"    return [{', '.join(init_texts)}]")
    draft.blank(2)
    draft.write("def get_inputs():", "    return [")
    draft.write(*(f"        {text}," for text in texts), "    ]")
