"""Follows values through one function in source order: which of them are tensors, and what is
computed on them.

This is a reading, not a proof: branches are taken one after the other, loops once, and what is
unknown stays unknown. It never says tensor without a reason in the text.
"""

from __future__ import annotations

from tree_sitter import Node

from musacoder_lsp.sites.expressions import Expressions
from musacoder_lsp.sites.names import imported, targets
from musacoder_lsp.sites.syntax import field as child_of
from musacoder_lsp.sites.syntax import text_of
from musacoder_lsp.sites.value import OTHER, UNKNOWN, Value

_LITERALS = frozenset(
    {
        "integer", "float", "true", "false", "none", "string", "concatenated_string",
        "ellipsis",
    }
)  # fmt: skip
_WITH_DIM = frozenset({"max", "min", "median", "nanmedian", "cummax", "cummin"})
_SCALAR_CALLS = frozenset({"len", "int", "float", "bool", "str", "round", "math", "range"})
_TRAINING_METHODS = frozenset({"backward", "zero_grad"})


class Flow(Expressions):
    """Reads the body of one function; `operations` and `values` are what it found."""

    def read(self, body: Node) -> None:
        for statement in body.named_children:
            self._statement(statement)

    # Statements ------------------------------------------------------------------------------

    def _statement(self, node: Node) -> None:
        kind = node.type
        if kind in ("function_definition", "class_definition", "decorated_definition", "comment"):
            definition = child_of(node, "definition") or node
            name = child_of(definition, "name")
            if name is not None:
                self.values[text_of(name, self._data)] = OTHER
        elif kind in ("import_statement", "import_from_statement"):
            for binding in imported(node, self._data):
                self.values[binding.name] = Value("name", binding.dotted)
        elif kind == "for_statement":
            self._for(node)
        elif kind == "with_item":
            self._with_item(node)
        elif kind in ("expression_statement", "return_statement"):
            for child in node.named_children:
                self.value(child)
        elif kind.endswith(("_statement", "_clause", "block")):
            for child in node.named_children:
                self._statement(child)
        elif kind != "as_pattern":
            self.value(node)

    def _for(self, node: Node) -> None:
        left, right = child_of(node, "left"), child_of(node, "right")
        if left is not None and right is not None:
            self._bind(left, self._element(right, self.value(right)))
        for name in ("body", "alternative"):
            child = child_of(node, name)
            if child is not None:
                self._statement(child)

    def _with_item(self, node: Node) -> None:
        value = child_of(node, "value")
        if value is None:
            return
        if value.type == "as_pattern":
            for child in value.named_children:
                if child.type == "as_pattern_target":
                    for name in targets(child, self._data):
                        self.values[name] = UNKNOWN
                else:
                    self.value(child)
        else:
            self.value(value)
