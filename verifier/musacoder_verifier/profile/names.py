"""Names of kernels: a compiler reports linkage names, a profiler demangled ones."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"\d+")


def short_name(name: str) -> str:
    """The identifier alone: `softmax` of `void ns::softmax<float, 4>(float const*, int)` and of
    `_ZN2ns7softmaxIfLi4EEEvPKfi`."""
    mangled = _identifiers(name)
    if mangled:
        return mangled[-1]
    depth = 0
    kept = []
    for letter in name.replace("(anonymous namespace)::", ""):
        depth += letter == "<"
        if letter == "(" and depth == 0:
            break
        if depth == 0:
            kept.append(letter)
        depth -= letter == ">"
    plain = "".join(kept)
    if plain.endswith(" "):  # a remark, such as "Memcpy DtoD (Device -> Device)"
        return plain.strip()
    return plain.split()[-1].rpartition("::")[2] if plain else name


def same_kernel(symbol: str, seen: str) -> bool:
    """Whether a linkage name and a demangled (or linkage) name are of one function template."""
    return symbol == seen or short_name(symbol) == short_name(seen)


def _identifiers(symbol: str) -> list[str]:
    """The source names at the start of an Itanium mangled name, outermost first."""
    if not symbol.startswith("_Z"):
        return []
    at = 2
    while at < len(symbol) and symbol[at] in "NKL":
        at += 1
    found: list[str] = []
    while (length := _LENGTH.match(symbol, at)) is not None:
        end = length.end() + int(length[0])
        found.append(symbol[length.end() : end])
        at = end
    return [name for name in found if not name.startswith("_GLOBAL__N_")] or found
