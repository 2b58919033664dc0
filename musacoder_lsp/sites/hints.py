"""What type annotations say of values."""

from __future__ import annotations

from collections.abc import Mapping

from tree_sitter import Node

from musacoder_lsp.sites.names import ModuleNames, dotted_text
from musacoder_lsp.sites.operations import Role, role_of
from musacoder_lsp.sites.syntax import field as child_of
from musacoder_lsp.sites.syntax import text_of
from musacoder_lsp.sites.value import OTHER, SCALAR, SHAPE, TENSOR, TENSORS, Value

_ANNOTATED_SCALARS = frozenset({"int", "float", "bool", "str", "bytes", "complex"})
_TORCH_SCALARS = frozenset(
    {"torch.dtype", "torch.device", "torch.Size", "torch.layout", "torch.memory_format"}
)
_LISTS = frozenset({"list", "tuple", "List", "Tuple", "Sequence", "Iterable"})


def annotated(
    annotation: Node, data: bytes, names: ModuleNames, local: Mapping[str, Value]
) -> Value | None:
    """What a type annotation says; None when it says nothing that is followed here."""
    node = annotation
    while node.type in ("type", "parenthesized_expression") and node.named_child_count:
        node = node.named_children[0]
    if node.type == "string":
        text = text_of(node, data).strip("\"'")
        head = text.partition("[")[0].strip()
        return _type_named(head, names, local)
    if node.type in ("generic_type", "subscript"):
        base = child_of(node, "value") or node.named_children[0]
        dotted = dotted_text(base, data)
        head_value = _type_named(dotted, names, local) if dotted else None
        if head_value == TENSOR:
            return TENSOR
        inner = [
            annotated(child, data, names, local)
            for parameter in node.named_children[1:]
            for child in (
                parameter.named_children if parameter.type == "type_parameter" else [parameter]
            )
        ]
        if dotted and dotted.rpartition(".")[2] in _LISTS:
            if any(value in (TENSOR, TENSORS) for value in inner):
                return TENSORS
            return SHAPE if all(value in (SCALAR, SHAPE, None) for value in inner) else OTHER
        if dotted and dotted.rpartition(".")[2] == "Literal":
            return SCALAR
        if dotted and dotted.rpartition(".")[2] in ("Optional", "Union", "Annotated"):
            return TENSOR if TENSOR in inner else next((v for v in inner if v), None)
        return OTHER
    if node.type in ("binary_operator", "union_type"):
        inner = [annotated(child, data, names, local) for child in node.named_children]
        return TENSOR if TENSOR in inner else next((v for v in inner if v), None)
    dotted = dotted_text(node, data)
    if dotted is None and node.type == "member_type":
        dotted = text_of(node, data)
    return _type_named(dotted, names, local) if dotted else None


def _type_named(dotted: str, names: ModuleNames, local: Mapping[str, Value]) -> Value | None:
    first, _, rest = dotted.partition(".")
    known = local.get(first)
    head = known.dotted if known is not None else names.lookup(first)
    resolved = f"{head}.{rest}" if head and rest else head
    if resolved and role_of(resolved) is Role.TENSOR_TYPE:
        return TENSOR
    if resolved is None and dotted in ("Tensor", "torch.Tensor"):
        # Under `TYPE_CHECKING`, or a star import: nothing else is called so.
        return TENSOR
    if dotted in _ANNOTATED_SCALARS or resolved in _TORCH_SCALARS:
        return SCALAR
    if resolved is None or resolved.endswith(".Any"):
        return OTHER if dotted in ("dict", "set", "type") else None
    return OTHER
