"""Declarations of PyTorch operators for the facade, generated from the user's own headers.

PyTorch's headers are themselves generated, one operator a file, so that reading them by pattern is
exact. Only names that occur in a candidate's text are written, each with all of its overloads: the
overload sets are therefore those of the user's PyTorch, and the cost is that of a few functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

# Methods that the facade's own Tensor class calls, whatever the candidate names.
_BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
_ARITHMETIC = ("add", "sub", "mul", "div")
_INPLACE = tuple(f"{name}_" for name in (*_ARITHMETIC, *_BITWISE))
_COMPARISON = ("lt", "le", "gt", "ge", "eq", "ne")
_OTHER = ("remainder", "remainder_", "bitwise_not", "neg", "fill_", "copy_", "item", "select", "to")
CORE_METHODS = frozenset(
    (*_ARITHMETIC, *_BITWISE, *_INPLACE, *_COMPARISON, *_OTHER, "__dispatch_contiguous")
)

# Operators with a direct entry in the C ABI, by C++ name of the operator's struct.
_DIRECT = {"empty_memory_format": "call_empty", "empty_like": "call_empty_like"}

_METHOD_DECLARATION = re.compile(r"^  (\S.*?[ &>])(\w+)\((.*)\) const;$", re.M)
_METHOD_DEFINITION = re.compile(
    r"^inline (\S[^\n]*?[ &>])Tensor::(\w+)\(([^\n]*)\) const \{\n(.*?)\n\}", re.M | re.S
)
_FUNCTION = re.compile(r"^inline (\S[^\n]*?[ &>])(\w+)\(([^\n]*)\) \{\n(.*?)\n\}", re.M | re.S)
_STRUCT = re.compile(r"^struct TORCH_API (\w+) \{\n(.*?)\n\};", re.M | re.S)
_STRUCT_NAME = re.compile(r'\bname(?: = |, )"(aten::\w+)"')
_STRUCT_OVERLOAD = re.compile(r'\boverload_name(?: = |, )"(\w*)"')
_STRUCT_CALL = re.compile(r"^  static (\S.*?[ &>])call\((.*)\);$", re.M)
_REPLACED = (
    ("c10::SymIntArrayRef", "at::IntArrayRef"),
    ("at::OptionalSymIntArrayRef", "at::OptionalIntArrayRef"),
    ("c10::SymInt", "int64_t"),
    # Views of lists that are made in more ways than one; an extension makes them in this one.
    ("const at::ITensorListRef &", "at::TensorList"),
    ("const at::ITensorList &", "at::TensorList"),
)
_USED_STRUCT = re.compile(r"at::_ops::(\w+)::call\(")
_FACTORY_BODY = re.compile(r"make_variable\((.*), /\*requires_grad=\*/(.*)\);$", re.M)

_VALUE = (
    r"(?:at::Tensor|at::TensorList|at::Scalar|int64_t|bool|double|(?:::)?(?:std|c10)::string_view"
    r"|at::IntArrayRef|at::OptionalIntArrayRef|at::ArrayRef<double>|at::ScalarType|at::Layout"
    r"|at::Device|at::MemoryFormat|at::Generator|at::TensorOptions|::std::array<bool,\d+>)"
)
_PARAMETER = re.compile(rf"(?:const )?(?:{_VALUE}|(?:::std|c10)::optional<{_VALUE}>)(?: ?&)?")
_RESULT_ITEM = r"(?:at::Tensor|::std::vector<at::Tensor>|int64_t|double|bool)"
_RESULT = re.compile(
    rf"(?:void|at::ScalarType|at::Scalar|{_RESULT_ITEM}|::std::tuple<{_RESULT_ITEM}(?:,{_RESULT_ITEM})*>"
    r"|(?:const )?at::Tensor &|::std::tuple<at::Tensor &(?:,at::Tensor &)*>)"
)
# Types that the facade only names: an overload with one is declared as deleted, so that it still
# takes part in overload resolution and a call of it goes to the stock lane.
_NAMED_ONLY = re.compile(r"at::Dimname|at::DimnameList|at::Storage|c10::List<")


@dataclass(frozen=True, slots=True)
class Parameter:
    type: str
    name: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator struct of `ATen/ops/*_ops.h`."""

    struct: str
    name: str
    overload: str
    result: str
    parameters: tuple[Parameter, ...]


def identifiers(text: str) -> frozenset[str]:
    """Every identifier-like word of `text`, comments and strings included."""
    return frozenset(IDENTIFIER.findall(text))


def method_declarations(torch_include: Path, names: Iterable[str] | None = None) -> str:
    """What stands inside class Tensor: every method that is an operator, for the PyTorch headers
    in `torch_include`; with `names`, those alone that they can mean, and what the facade itself
    calls. Raises OSError where the headers cannot be read."""
    chosen = None if names is None else CORE_METHODS.union(names)
    return _catalogue(torch_include).method_declarations(chosen)


def core_definitions(torch_include: Path) -> str:
    """The definitions of the methods that the facade's own headers use."""
    return _catalogue(torch_include).definitions(CORE_METHODS, frozenset())


def definitions(torch_include: Path, names: Iterable[str]) -> str:
    """The definitions of all other operators that `names` can mean, as methods and functions."""
    return _catalogue(torch_include).definitions(frozenset(names) - CORE_METHODS, frozenset(names))


@lru_cache(maxsize=4)
def _catalogue(torch_include: Path) -> _Catalogue:
    return _Catalogue(torch_include)


class _Catalogue:
    def __init__(self, torch_include: Path) -> None:
        self._ops = torch_include / "ATen" / "ops"
        body = _plain((torch_include / "ATen" / "core" / "TensorBody.h").read_text("utf-8"))
        self._declarations = _grouped(_METHOD_DECLARATION, body, 2)
        self._definitions = _grouped(_METHOD_DEFINITION, body, 2)
        factories = torch_include / "torch/csrc/autograd/generated/variable_factories.h"
        self._factories = _grouped(_FUNCTION, _plain(factories.read_text("utf-8")), 2)
        self._structs: dict[str, dict[str, Operator]] = {}
        self._core: frozenset[str] | None = None
        self._functions: dict[str, dict[str, list[re.Match[str]]]] = {}

    def method_declarations(self, chosen: frozenset[str] | None) -> str:
        lines = [
            line
            for name, matches in self._declarations.items()
            if not name.endswith("_symint") and name in self._definitions
            if chosen is None or name in chosen
            for match in matches
            for line in _declaration(match, " const")
        ]
        return "\n".join(lines) + "\n"

    def definitions(self, methods: frozenset[str], names: frozenset[str]) -> str:
        definitions: list[str] = []
        functions: list[str] = []
        factories: list[str] = []
        structs: dict[str, Operator] = {}
        given = frozenset() if methods == CORE_METHODS else self._core_structs()
        for name in sorted(methods):
            if name.endswith("_symint") or name not in self._definitions:
                continue
            for match in self._definitions[name]:
                result, _, parameters, body = match.groups()
                if _usable(result, parameters) and self._take_structs(name, body, structs):
                    definitions.append(
                        f"inline {result}Tensor::{name}({parameters}) const {{\n{body}\n}}"
                    )
        for name in sorted(names):
            if name in self._factories:
                # torch::zeros and the like wrap at::zeros, and have overloads of their own.
                factories.extend(filter(None, map(_factory, self._factories[name])))
            for match in self._functions_named(name):
                result, _, parameters, body = match.groups()
                if not _usable(result, parameters):
                    functions.extend(_declaration(match, "", prefix=""))
                elif self._take_structs(name, body, structs):
                    functions.append(f"inline {result}{name}({parameters}) {{\n{body}\n}}")
        parts = [
            "namespace at {",
            "namespace _ops {",
            *(_struct(item) for name, item in structs.items() if name not in given),
            "} // namespace _ops",
            "inline namespace mc_facade {",
            *definitions,
            *functions,
            "} // namespace mc_facade",
            "} // namespace at",
            "namespace torch {",
            "inline namespace mc_facade {",
            *factories,
            "} // namespace mc_facade",
            "} // namespace torch",
        ]
        return "\n".join(parts) + "\n"

    def _core_structs(self) -> frozenset[str]:
        """Structs that the precompiled part defines already."""
        if self._core is None:
            structs: dict[str, Operator] = {}
            for name in CORE_METHODS & self._definitions.keys():
                for match in self._definitions[name]:
                    if _usable(match.group(1), match.group(3)):
                        self._take_structs(name, match.group(4), structs)
            self._core = frozenset(structs)
        return self._core

    def _take_structs(self, name: str, body: str, structs: dict[str, Operator]) -> bool:
        """Adds the operators that a body calls; False where one of them cannot be carried."""
        for struct in _USED_STRUCT.findall(body):
            if struct not in structs:
                operator = self._operator(name, struct)
                if operator is None or not _carried(operator):
                    return False
                structs[struct] = operator
        return True

    def _operator(self, name: str, struct: str) -> Operator | None:
        plain = name.removeprefix("__dispatch_")
        for base in _bases(plain):
            if base not in self._structs:
                self._structs[base] = _read_structs(self._ops / f"{base}_ops.h")
            if struct in self._structs[base]:
                return self._structs[base][struct]
        return None

    def _functions_named(self, name: str) -> list[re.Match[str]]:
        if name.endswith("_symint"):
            return []
        for base in _bases(name):
            if base not in self._functions:
                try:
                    text = (self._ops / f"{base}.h").read_text("utf-8")
                except OSError:
                    self._functions[base] = {}
                else:
                    self._functions[base] = _grouped(_FUNCTION, _plain(text), 2)
            if name in self._functions[base]:
                return self._functions[base][name]
        return []


def _bases(name: str) -> tuple[str, ...]:
    """Files that can hold an operator: `add_out` and `add_` stand in those of `add`."""
    bases = [name]
    for suffix in ("_outf", "_out", "_"):
        if name.endswith(suffix) and len(name) > len(suffix):
            bases.append(name[: -len(suffix)])
    return tuple(bases)


def _plain(text: str) -> str:
    """Symbolic integers are plain ones here: nothing is traced while a kernel is checked."""
    for symbolic, plain in _REPLACED:
        text = text.replace(symbolic, plain)
    return re.sub(r"c10::fromIntArrayRef(?:Slow|KnownNonNegative)\(", "(", text)


def _grouped(pattern: re.Pattern[str], text: str, group: int) -> dict[str, list[re.Match[str]]]:
    found: dict[str, list[re.Match[str]]] = {}
    for match in pattern.finditer(text):
        found.setdefault(match.group(group), []).append(match)
    return found


def _split(parameters: str) -> list[str]:
    """Splits a parameter list at its top-level commas."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(parameters):
        if character in "<({":
            depth += 1
        elif character in ">)}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(parameters[start:index])
            start = index + 1
    parts.append(parameters[start:])
    return [part.strip() for part in parts if part.strip()]


def _parameters(text: str) -> tuple[Parameter, ...]:
    parsed = []
    for part in _split(text):
        declaration, equals, default = part.partition("=")
        declaration = declaration.strip()
        name = IDENTIFIER.findall(declaration)[-1]
        parsed.append(
            Parameter(declaration[: -len(name)].strip(), name, default.strip() if equals else None)
        )
    return tuple(parsed)


def _usable(result: str, parameters: str) -> bool:
    return _RESULT.fullmatch(result.strip()) is not None and all(
        _PARAMETER.fullmatch(parameter.type) for parameter in _parameters(parameters)
    )


def _carried(operator: Operator) -> bool:
    return _RESULT.fullmatch(operator.result) is not None and all(
        _PARAMETER.fullmatch(parameter.type) and "TensorOptions" not in parameter.type
        for parameter in operator.parameters
    )


def _declaration(match: re.Match[str], suffix: str, prefix: str = "  ") -> list[str]:
    result, name, parameters = match.group(1), match.group(2), match.group(3)
    if _usable(result, parameters):
        return [f"{prefix}{result}{name}({parameters}){suffix};"]
    unknown = [
        parameter
        for parameter in _parameters(parameters)
        if not _PARAMETER.fullmatch(parameter.type)
    ]
    if unknown and all(_NAMED_ONLY.search(parameter.type) for parameter in unknown):
        return [f"{prefix}void {name}({parameters}){suffix} = delete;"]
    return []


def _factory(match: re.Match[str]) -> str | None:
    result, name, parameters, body = match.groups()
    made = _FACTORY_BODY.search(body)
    if made is None or name.endswith("_symint") or not _usable(result, parameters):
        return None
    return (
        f"inline {result}{name}({parameters}) {{\n"
        f"  at::Tensor made = {made.group(1)};\n"
        f"  if ({made.group(2)}) made.set_requires_grad(true);\n"
        f"  return made;\n}}"
    )


def _read_structs(path: Path) -> dict[str, Operator]:
    try:
        text = _plain(path.read_text("utf-8"))
    except OSError:
        return {}
    operators = {}
    for struct, body in _STRUCT.findall(text):
        name, overload = _STRUCT_NAME.search(body), _STRUCT_OVERLOAD.search(body)
        call = _STRUCT_CALL.search(body)
        if name is None or overload is None or call is None:
            continue
        operators[struct] = Operator(
            struct, name.group(1), overload.group(1), call.group(1).strip(), _parameters(call[2])
        )
    return operators


def _struct(operator: Operator) -> str:
    """A struct with PyTorch's name for the operator, whose call goes through the C ABI."""
    parameters = ", ".join(f"{item.type} {item.name}" for item in operator.parameters)
    arguments = ", ".join(item.name for item in operator.parameters)
    written = [item.name for item in operator.parameters if item.type == "at::Tensor &"]
    lines = [f'    MC_NAME_OPERATOR("{operator.name}", "{operator.overload}");']
    if operator.struct in _DIRECT:
        lines.append(f"    return ::musacoder::{_DIRECT[operator.struct]}({arguments});")
    else:
        lines.append(
            "    static const mc_operator* const target = "
            f'::musacoder::find_operator("{operator.name}", "{operator.overload}");'
        )
        returns_reference = "&" in operator.result
        result = "void" if returns_reference else operator.result
        call = f"::musacoder::call_operator<{result}>({', '.join(['target', arguments])});"
        lines.append(f"    {call}" if returns_reference else f"    return {call}")
        if operator.result.startswith("::std::tuple") and returns_reference:
            count = operator.result.count("&")
            lines.append(f"    return {{{', '.join(written[-count:])}}};")
        elif returns_reference:
            returned = written[-1] if written else operator.parameters[0].name
            lines.append(f"    return {returned};")
    body = "\n".join(lines)
    return (
        f"struct {operator.struct} {{\n"
        f"  static {operator.result} call({parameters}) {{\n{body}\n  }}\n}};"
    )
