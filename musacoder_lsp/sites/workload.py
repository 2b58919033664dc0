"""Workloads that are written into the source: annotation comments and jaxtyping annotations.

    # musacoder: x: f32[B, 1024], ids: i64[B, 128] < 50257, mask: bool[B, 128]
    # musacoder: B=8, scale=0.3, states: [f32[B, 64], f32[B, 64]]
    # musacoder: init: hidden=64, bias=True
    # musacoder: mode: train

Nothing is guessed: what is not written is missing, and integers without a range are a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_MARK = re.compile(r"#\s*musacoder\s*:\s*(.*)$")
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d[\d_]*(?:\.(?!\.)\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)
    |(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)|(?P<string>'[^']*'|"[^"]*")
    |(?P<sign>//|<=|>=|\.\.|[][(){}:,=<>+*/?-]))""",
    re.VERBOSE,
)
DTYPES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i64": "int64",
    "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool",
    "c64": "complex64", "c128": "complex128",
}  # fmt: skip
_LONG_DTYPES = {long: long for long in DTYPES.values()}
_JAXTYPING = re.compile(r"(\w+)\[\s*[\w.]+\s*,\s*[rf]?(['\"])(.*?)\2\s*\]", re.DOTALL)
_JAX_DTYPES = {
    "Float": "float32", "Float32": "float32", "Float16": "float16", "BFloat16": "bfloat16",
    "Float64": "float64", "Int": "int64", "Int64": "int64", "Int32": "int32", "Int16": "int16",
    "Int8": "int8", "UInt8": "uint8", "Bool": "bool", "Real": "float32", "Num": "float32",
    "Shaped": "float32", "Inexact": "float32", "Integer": "int64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Dimensions are sizes or expressions over symbolic ones; `low` and `high` bound the values,
    `high` excluded."""

    dtype: str
    shape: tuple[str, ...]
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """A value that is no tensor, as Python text."""

    text: str


@dataclass(frozen=True, slots=True)
class ListSpec:
    items: tuple[Spec, ...]
    is_tuple: bool = False


Spec = TensorSpec | ValueSpec | ListSpec


@dataclass(frozen=True, slots=True)
class Comment:
    line: int  # 0-based, in the user's file or relative to the Site
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Annotations:
    """What the annotation comments of one Site say. `values` holds `name=value` items: symbolic
    dimensions, and inputs that are no tensors."""

    inputs: Mapping[str, Spec] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    init: Mapping[str, Spec] = field(default_factory=dict)
    mode: str | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def training(self) -> bool:
        return self.mode == "train"

    def spec(self, name: str) -> Spec | None:
        if name in self.inputs:
            return self.inputs[name]
        return ValueSpec(self.values[name]) if name in self.values else None

    def unbound(self, spec: Spec) -> tuple[str, ...]:
        """Symbolic dimensions of a spec that no comment binds."""
        if isinstance(spec, ListSpec):
            return tuple(dict.fromkeys(n for item in spec.items for n in self.unbound(item)))
        if isinstance(spec, ValueSpec):
            return ()
        names = (n for dim in spec.shape for n in re.findall(r"[^\W\d]\w*", dim))
        return tuple(dict.fromkeys(n for n in names if n not in self.values))


def is_annotation(text: str) -> bool:
    return _MARK.search(text) is not None


def parse_annotations(comments: Iterable[Comment]) -> Annotations:
    """Reads the annotation comments among `comments`; the others are ignored."""
    inputs: dict[str, Spec] = {}
    values: dict[str, str] = {}
    init: dict[str, Spec] = {}
    mode: str | None = None
    problems: list[Problem] = []
    for comment in comments:
        match = _MARK.search(comment.text)
        if match is None:
            continue
        try:
            reader = _Reader(match.group(1))
            if reader.section("mode"):
                mode = reader.mode()
            elif reader.section("init"):
                for name, spec in reader.items():
                    init[name] = spec
            else:
                for name, spec in reader.items():
                    if isinstance(spec, ValueSpec):
                        values[name] = spec.text
                    else:
                        inputs[name] = spec
        except ValueError as error:
            problems.append(Problem(comment.line, f"{error} in `{comment.text.strip()}`."))
    return Annotations(inputs, values, init, mode, tuple(problems))


class _Reader:
    """Recursive descent over the text of one comment; ValueError says what is wrong."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"`{text[position:].strip()[:1]}` is not understood")
            self._tokens.append((match.lastgroup or "", match.group(match.lastgroup or 0)))
            position = match.end()

    def _peek(self, ahead: int = 0) -> str:
        index = self._at + ahead
        return self._tokens[index][1] if index < len(self._tokens) else ""

    def _next(self, expected: str | None = None) -> str:
        token = self._peek()
        if not token:
            raise ValueError(
                f"`{expected}` is expected at the end" if expected else "it ends early"
            )
        if expected is not None and token != expected:
            raise ValueError(f"`{expected}` is expected before `{token}`")
        self._at += 1
        return token

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def section(self, name: str) -> bool:
        # `init: hidden=64`; but `init: f32[3]` is an input that happens to be called so.
        if self._peek() != name or self._peek(1) != ":":
            return False
        if name == "init" and self._peek(3) != "=":
            return False
        self._at += 2
        return True

    def mode(self) -> str:
        mode = self._next()
        if mode not in ("train", "eval") or self._peek():
            raise ValueError("the mode is `train` or `eval`")
        return mode

    def items(self) -> Iterable[tuple[str, Spec]]:
        while self._peek():
            if self._kind() != "name":
                raise ValueError(f"a name is expected before `{self._peek()}`")
            name = self._next()
            if self._peek() == "=":
                self._next()
                yield name, ValueSpec(self._value())
            else:
                self._next(":")
                yield name, self._spec(name)
            if self._peek():
                self._next(",")

    def _spec(self, name: str) -> Spec:
        token = self._peek()
        if self._kind() == "name" and self._peek(1) == "[":
            return self._tensor(name)
        if self._kind() == "name" and token in DTYPES and token != "bool":
            raise ValueError(f"the shape of {name} is missing, as in `{token}[8, 128]`")
        if token in ("[", "("):
            after = self._peek(1)
            if (after in DTYPES or after in _LONG_DTYPES or after in "[(") and after:
                return self._list(name)
        return ValueSpec(self._value())

    def _list(self, name: str) -> ListSpec:
        opening = self._next()
        closing = "]" if opening == "[" else ")"
        items: list[Spec] = []
        while self._peek() != closing:
            items.append(self._spec(name))
            self._separator(closing)
        self._next(closing)
        return ListSpec(tuple(items), opening == "(")

    def _separator(self, closing: str) -> None:
        """A comma, unless the list ends here or the text does."""
        if self._peek() not in (closing, ""):
            self._next(",")
        elif not self._peek():
            self._next(closing)

    def _tensor(self, name: str) -> TensorSpec:
        short = self._next()
        dtype = DTYPES.get(short) or _LONG_DTYPES.get(short.removeprefix("torch."))
        if dtype is None:
            raise ValueError(f"`{short}` is no dtype; use one of {', '.join(DTYPES)}")
        self._next("[")
        shape: list[str] = []
        while self._peek() != "]":
            shape.append(self._dimension(name))
            self._separator("]")
        self._next("]")
        low, high = self._range()
        if dtype.startswith("int") and high is None:
            raise ValueError(
                f"{name} holds integers, so it needs a range, as in `{name}: {short}[...] < 100`"
            )
        return TensorSpec(dtype, tuple(shape), low, high)

    def _dimension(self, name: str) -> str:
        parts: list[str] = []
        depth = 0
        while (token := self._peek()) and (depth or token not in ("]", ",")):
            if token == "?":
                raise ValueError(f"the shape of {name} is still to be filled in")
            if self._kind() == "string" or (
                token not in ("+", "-", "*", "//", "(", ")")
                and (self._kind() == "sign" or "." in token)
            ):
                raise ValueError(f"`{token}` is no size of {name}")
            depth += (token == "(") - (token == ")")
            parts.append(self._next())
        if not parts:
            raise ValueError(f"a size of {name} is missing")
        return " ".join(parts)

    def _range(self) -> tuple[str | None, str | None]:
        low: str | None = None
        high: str | None = None
        while (token := self._peek()) in ("<", ">=", "in"):
            self._next()
            if token == "<":
                high = self._number()
            elif token == ">=":
                low = self._number()
            else:
                low = self._number()
                self._next("..")
                high = self._number()
        return low, high

    def _number(self) -> str:
        sign = self._next() if self._peek() == "-" else ""
        if self._kind() not in ("number", "name"):
            raise ValueError(f"a number is expected before `{self._peek()}`")
        return sign + self._next()

    def _value(self) -> str:
        """A literal, as Python text: number, string, name, or a list or tuple of them."""
        token = self._peek()
        if token == "?":
            raise ValueError("a value is still to be filled in")
        if token in ("[", "("):
            closing = "]" if self._next() == "[" else ")"
            parts: list[str] = []
            while self._peek() != closing:
                parts.append(self._value())
                self._separator(closing)
            self._next(closing)
            tail = "," if closing == ")" and len(parts) == 1 else ""
            return f"{token}{', '.join(parts)}{tail}{closing}"
        if token == "-":
            return self._next() + self._value()
        if self._kind() == "sign":
            raise ValueError(f"a value is expected before `{token}`")
        return self._next()


def jaxtyping_spec(annotation: str | None) -> TensorSpec | None:
    """Shape and dtype of `Float[Tensor, "b c"]`; None for another annotation."""
    match = _JAXTYPING.search(annotation) if annotation else None
    if match is None or match.group(1) not in _JAX_DTYPES:
        return None
    shape = [part.partition("=")[2] or part for part in match.group(3).split()]
    if any(part in ("...", "_") or part[:1] in "*#?" for part in shape):
        return None
    return TensorSpec(_JAX_DTYPES[match.group(1)], tuple(shape))
