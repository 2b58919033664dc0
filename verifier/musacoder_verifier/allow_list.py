"""Which ATen operators a Candidate's forward may call: MusaCoder, Appendix J, and what it lacks.

An operator is allowed if its full name, or its name cut at the first dot, is listed
(`empty.memory_format` -> `empty`). Change the version with the lists: it is part of a Verdict.
"""

from __future__ import annotations

VERSION = "J42+7.1"

_APPENDIX_J = """
    _assert_async _assert_async.msg _assert_scalar _assert_tensor_metadata _cast_Byte _cast_Char
    _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short _local_scalar_dense alias
    allclose arange as_strided broadcast_to clone contiguous copy_ empty empty_like equal expand
    flatten full item ones permute rand randint randn reshape select slice squeeze stride transpose
    unsqueeze view zeros
"""
APPENDIX_J = frozenset(_APPENDIX_J.split())
# Names that torch >= 2.11 dispatches the same calls under.
DISPATCHER_NAMES = frozenset(
    ["_to_copy", "detach", "empty_strided", "fill_", "new_empty", "to", "zero_"]
)
# Not listed, and yet they compute nothing: they arrange memory or fill it with a constant.
_PLUMBING = """
    T _reshape_alias _unsafe_view chunk detach_ diagonal expand_as full_like is_contiguous
    lift_fresh mT movedim narrow new_empty_strided new_full new_ones new_zeros numpy_T ones_like
    reshape_as resize_ resolve_conj resolve_neg set_ size split split_with_sizes squeeze_
    storage_offset swapaxes swapdims t transpose_ type_as unbind unflatten unsafe_chunk
    unsafe_split unsqueeze_ view_as zeros_like
"""
PLUMBING = frozenset(_PLUMBING.split())


def allowed(operator: str) -> bool:
    """Whether Appendix J, with the dispatcher's newer names, lists `operator` ("aten::mm")."""
    return _listed(operator, APPENDIX_J) or _listed(operator, DISPATCHER_NAMES)


def plumbing(operator: str) -> bool:
    """Whether `operator` is not listed but only arranges memory."""
    return _listed(operator, PLUMBING)


def _listed(operator: str, names: frozenset[str]) -> bool:
    name = operator[len("aten::") :] if operator.startswith("aten::") else operator
    return name in names or name.split(".", 1)[0] in names


def struct_listed(operator: str) -> bool:
    """Whether `operator`, named as the C++ struct of an overload, may be a listed or plumbing one:
    "aten::empty_memory_format" is `empty.memory_format`."""
    name = operator.removeprefix("aten::")
    known = APPENDIX_J | DISPATCHER_NAMES | PLUMBING
    parts = name.split("_")
    return any("_".join(parts[:count]) in known for count in range(1, len(parts)))
