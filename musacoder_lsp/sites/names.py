"""What the names at the top of a module, and inside its functions, stand for.

A name resolves to a dotted path: `F` to `torch.nn.functional`, and a definition of the file itself
to `@name`. A name that was bound to something else since resolves to None.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tree_sitter import Node

from musacoder_lsp.sites.operations import MODULE_BASES, TELLING_METHODS, Role, role_of
from musacoder_lsp.sites.syntax import definition_of, field, text_of

_BUILTINS = frozenset(dir(builtins))
_TENSOR_LIBRARIES = ("torch", "einops", "jaxtyping")
# One of these, or of the names that a file has from torch, occurs in all code on tensors.
_WORDS = frozenset({b"torch", b"Tensor", b"forward", b"musacoder"})
_METHODS = frozenset(name.encode() for name in TELLING_METHODS)
# Statements whose blocks bind in the scope around them.
_BLOCKS = frozenset(
    {
        "if_statement", "else_clause", "elif_clause", "try_statement", "except_clause",
        "except_group_clause", "finally_clause", "with_statement", "for_statement",
        "while_statement", "block", "match_statement", "case_clause",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Binding:
    """`name` comes to mean `dotted`; None: something that is not followed. A star import has the
    name `*`. `bases` are the bases of a class as they are written."""

    name: str
    dotted: str | None
    bases: tuple[str, ...] | None = None


def dotted_text(node: Node | None, data: bytes) -> str | None:
    """`a.b.c` of a chain of attributes, else None."""
    parts: list[str] = []
    while node is not None and node.type == "attribute":
        attribute = field(node, "attribute")
        if attribute is None:
            return None
        parts.append(text_of(attribute, data))
        node = field(node, "object")
    if node is None or node.type != "identifier":
        return None
    parts.append(text_of(node, data))
    return ".".join(reversed(parts))


def imported(node: Node, data: bytes) -> Iterator[Binding]:
    """Bindings of an `import` or `from ... import` statement."""
    if node.type == "import_statement":
        for child in node.named_children:
            if child.type == "aliased_import":
                name, alias = field(child, "name"), field(child, "alias")
                if name is not None and alias is not None:
                    yield Binding(text_of(alias, data), text_of(name, data))
            elif child.type == "dotted_name":
                first = text_of(child, data).partition(".")[0]
                yield Binding(first, first)
        return
    module_node = field(node, "module_name")
    module = "__future__" if module_node is None else text_of(module_node, data)
    for child in node.named_children:
        if child == module_node:
            continue
        if child.type == "wildcard_import":
            yield Binding("*", module)
        elif child.type == "dotted_name":
            name_text = text_of(child, data)
            yield Binding(name_text, _join(module, name_text))
        elif child.type == "aliased_import":
            name, alias = field(child, "name"), field(child, "alias")
            if name is not None and alias is not None:
                yield Binding(text_of(alias, data), _join(module, text_of(name, data)))


def _join(module: str, name: str) -> str:
    return module + name if module.endswith(".") else f"{module}.{name}"


def targets(node: Node, data: bytes) -> Iterator[str]:
    """Names that a target pattern binds."""
    if node.type == "identifier":
        yield text_of(node, data)
    elif node.type in (
        "pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern",
        "expression_list", "tuple", "list", "as_pattern_target",
    ):  # fmt: skip
        for child in node.named_children:
            yield from targets(child, data)


def bindings(node: Node, data: bytes) -> Iterator[Binding]:
    """Bindings that a statement of a module (or class) body makes in that body's scope."""
    # Not recursive: code that a generator wrote nests deeper than Python's own stack.
    stack = [node]
    while stack:
        statement = stack.pop()
        yield from _own_bindings(statement, data)
        if statement.type in _BLOCKS and definition_of(statement) is None:
            stack.extend(reversed(statement.named_children))


def _own_bindings(node: Node, data: bytes) -> Iterator[Binding]:
    """Bindings of a statement without those of the statements inside it."""
    kind = node.type
    definition = definition_of(node)
    if definition is not None:
        name = field(definition, "name")
        if name is None:
            return
        text = text_of(name, data)
        bases: tuple[str, ...] | None = None
        if definition.type == "class_definition":
            bases = tuple(base_names(definition, data))
        yield Binding(text, "@" + text, bases)
    elif kind in ("import_statement", "import_from_statement", "future_import_statement"):
        yield from imported(node, data)
    elif kind == "expression_statement":
        for child in node.named_children:
            yield from _assigned(child, data)
    elif kind in _BLOCKS:
        left = field(node, "left") if kind == "for_statement" else None
        if left is not None:
            yield from (Binding(name, None) for name in targets(left, data))
        if kind == "with_statement":
            for clause in node.named_children:
                if clause.type == "with_clause":
                    yield from _with_names(clause, data)


def _assigned(node: Node, data: bytes) -> Iterator[Binding]:
    if node.type == "assignment":
        left, right = field(node, "left"), field(node, "right")
        if left is None:
            return
        dotted = dotted_text(right, data) if left.type == "identifier" else None
        for name in targets(left, data):
            yield Binding(name, "=" + dotted if dotted else None)
        if right is not None and right.type == "assignment":
            yield from _assigned(right, data)
    elif node.type == "augmented_assignment":
        left = field(node, "left")
        if left is not None and left.type == "identifier":
            yield Binding(text_of(left, data), None)


def _with_names(clause: Node, data: bytes) -> Iterator[Binding]:
    stack = list(clause.named_children)
    while stack:
        node = stack.pop()
        if node.type == "as_pattern_target":
            yield from (Binding(name, None) for name in targets(node, data))
        elif node.type in ("with_item", "as_pattern"):
            stack.extend(node.named_children)


def base_names(definition: Node, data: bytes) -> Iterator[str]:
    """Bases of a class as dotted text; a subscripted base (`Base[T]`) counts as its object."""
    superclasses = field(definition, "superclasses")
    for child in superclasses.named_children if superclasses is not None else ():
        node: Node | None = child
        if node is not None and node.type == "subscript":
            node = field(node, "value")
        text = dotted_text(node, data)
        if text:
            yield text


class ModuleNames:
    """The names of one module, and a record of those that were asked for.

    `asked` lets a cached analysis of a piece of the file be reused after an edit elsewhere: it
    still holds when every name that it asked for still has the same answer.
    """

    def __init__(self, all_bindings: Iterable[Binding]) -> None:
        self._names: dict[str, str | None] = {}
        self._stars: list[str] = []
        self._bases: dict[str, tuple[str, ...]] = {}
        self.asked: dict[str, str | bool | None] = {}
        for binding in all_bindings:
            if binding.name == "*":
                self._stars.append(binding.dotted or "")
                continue
            dotted = binding.dotted
            if dotted is not None and dotted.startswith("="):
                dotted = self._follow(dotted[1:])
            self._names[binding.name] = dotted
            if binding.bases is not None:
                self._bases[binding.name] = tuple(
                    self._follow(base) or base for base in binding.bases
                )
        self._module_classes = {name for name in self._bases if self._derives(name, set())}
        own = {
            name.encode()
            for name, dotted in self._names.items()
            if name in self._module_classes or (dotted or "").startswith(_TENSOR_LIBRARIES)
        }
        # `x.softmax()` alone tells a tensor only where there are tensors at all.
        self._words = _WORDS | own | (_METHODS if own or "Tensor" in self._names else frozenset())

    def _follow(self, dotted: str) -> str | None:
        first, _, rest = dotted.partition(".")
        head = self._lookup(first)
        return head + "." + rest if head and rest else head

    def _lookup(self, name: str) -> str | None:
        if name in self._names:
            return self._names[name]
        # Of several star imports the last wins; a name that is a builtin or that no star import
        # of torch could have is left alone.
        if self._stars and name not in _BUILTINS and not name.startswith("_"):
            for star in reversed(self._stars):
                if star.partition(".")[0] == "torch" and role_of(f"{star}.{name}") is not None:
                    return f"{star}.{name}"
        return None

    def _derives(self, name: str, seen: set[str]) -> bool:
        if name in seen:
            return False
        seen.add(name)
        for base in self._bases.get(name, ()):
            if base.startswith("@"):
                if self._derives(base[1:], seen):
                    return True
            elif base in MODULE_BASES or role_of(base) is Role.MODULE:
                return True
        return False

    def resolve(self, dotted: str) -> str | None:
        """What a dotted text of the module's scope stands for."""
        first, _, rest = dotted.partition(".")
        head = self.lookup(first)
        return head + "." + rest if head and rest else head

    def lookup(self, name: str) -> str | None:
        answer = self._lookup(name)
        self.asked[name] = answer
        return answer

    def is_module_class(self, dotted: str) -> bool:
        """A class of torch.nn, or one of this file that derives from one."""
        if not dotted.startswith("@"):
            return role_of(dotted) is Role.MODULE
        answer = dotted[1:] in self._module_classes
        self.asked["@" + dotted[1:]] = answer
        return answer

    def still_holds(self, asked: dict[str, str | bool | None]) -> bool:
        for name, answer in asked.items():
            if name.startswith("@"):
                if (name[1:] in self._module_classes) is not answer:
                    return False
            elif self._lookup(name) != answer:
                return False
        return True

    def foreign(self, identifiers: AbstractSet[bytes]) -> bool:
        """A piece of code with these words cannot be tensor code."""
        return not self._stars and self._words.isdisjoint(identifiers)

    def bases_of(self, name: str) -> tuple[str, ...]:
        return self._bases.get(name, ())
