"""The part of a constructor that some attributes of `self` need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites.classes import Method, own_assignments, self_name
from musacoder_lsp.sites.scoping import assigned_names, free_names
from musacoder_lsp.sites.signature import Parameter, parameters
from musacoder_lsp.sites.syntax import field, text_of, walk

_REGISTER = frozenset({"register_buffer", "register_parameter", "add_module"})


@dataclass(frozen=True, slots=True)
class InitSlice:
    """`statements` of the constructor in order, the `parameters` that they read, and the names of
    the module that they need. `unknown` are attributes that the constructor does not assign."""

    statements: tuple[Node, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    module_names: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()


def own_attributes(node: Node, data: bytes, self_text: str) -> dict[str, None]:
    """Attributes of `self` that the node mentions, in order."""
    found: dict[str, None] = {}
    for current in walk(node):
        if current.type == "attribute":
            owner, name = field(current, "object"), field(current, "attribute")
            if owner is not None and name is not None and text_of(owner, data) == self_text:
                found[text_of(name, data)] = None
    return found


def uses_bare(node: Node, data: bytes, name: str) -> bool:
    """The node uses `name` otherwise than as the owner of an attribute."""
    for current in walk(node):
        if current.type == "identifier" and text_of(current, data) == name:
            parent = current.parent
            if parent is None or parent.type != "attribute":
                return True
    return False


class _Slicer:
    def __init__(self, init: Method, data: bytes) -> None:
        self._data = data
        self._init = init
        self._self = self_name(init.node, data)
        self._parameters = {p.name: p for p in parameters(init.node, data)[1:]}
        body = field(init.node, "body")
        self._statements = [
            node
            for node in (body.named_children if body is not None else ())
            if node.type != "comment" and not self._is_super_call(node)
        ]
        self._local = assigned_names(body, data) if body is not None else set()
        self._assigns = [self._assigned(node) for node in self._statements]

    def _is_super_call(self, node: Node) -> bool:
        text = text_of(node, self._data)
        return text.startswith("super(") or ".__init__(self" in text

    def _assigned(self, statement: Node) -> set[str]:
        """`.X` for an attribute of self, `X` for a local name."""
        found = assigned_names(statement, self._data)
        first, last = statement.start_byte, statement.end_byte
        for attribute, _, place in own_assignments(self._init.node, self._data):
            if first <= place.start_byte and place.end_byte <= last:
                found.add("." + attribute)
        return found

    def _needs(self, statement: Node) -> set[str]:
        own = own_attributes(statement, self._data, self._self)
        found = {"." + name for name in own if name not in _REGISTER}
        return found | (free_names(statement, self._data).keys() - {self._self})

    def slice(self, attributes: Iterable[str]) -> InitSlice:
        needed = {"." + name for name in attributes}
        unknown = [n[1:] for n in sorted(needed) if not any(n in a for a in self._assigns)]
        chosen: set[int] = set()
        grown = True
        while grown:
            grown = False
            for index, statement in enumerate(self._statements):
                if index in chosen:
                    continue
                if self._assigns[index] & needed or self._initialises(statement, needed):
                    chosen.add(index)
                    needed |= self._needs(statement)
                    grown = True
        names = {name for name in needed if not name.startswith(".")}
        unknown += [
            name[1:]
            for name in sorted(needed)
            if name.startswith(".")
            and name[1:] not in unknown
            and not any(name in assigned for assigned in self._assigns)
        ]
        used = tuple(p for p in self._parameters.values() if p.name in names)
        return InitSlice(
            tuple(self._statements[index] for index in sorted(chosen)),
            used,
            frozenset(names - self._parameters.keys() - self._local),
            tuple(unknown),
        )

    def _initialises(self, statement: Node, needed: set[str]) -> bool:
        """`nn.init.zeros_(self.fc.bias)` of attributes that are needed anyway."""
        if statement.type != "expression_statement":
            return False
        own = {"." + name for name in own_attributes(statement, self._data, self._self)}
        if not own or not own <= needed:
            return False
        local = free_names(statement, self._data).keys() & (self._local | self._parameters.keys())
        return local <= needed and statement.named_children[0].type == "call"


def slice_init(init: Method | None, attributes: Iterable[str], data: bytes) -> InitSlice:
    if init is None:
        return InitSlice(unknown=tuple(attributes))
    return _Slicer(init, data).slice(attributes)
