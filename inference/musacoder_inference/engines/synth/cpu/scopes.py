"""Prints expressions into nested C++ scopes: what does not change in a loop stands before it, and
what is used twice gets a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from musacoder_inference.engines.synth.dtypes import COMPUTE_TYPE
from musacoder_inference.engines.synth.ir import (
    Buffer,
    Const,
    Expr,
    Gather,
    Index,
    Load,
    Masked,
    Op,
    Target,
    leaves,
    walk,
)
from musacoder_inference.engines.synth.operations import (
    REPEATS,
    format_operation,
    index_text,
    literal,
    strip,
)

_LONG = 64


@dataclass(slots=True)
class Scope:
    """One block of the loop nest. `lines` are its statements so far; `names` gives the C++ name
    of an expression computed in it."""

    depth: int
    lines: list[str] = field(default_factory=list)
    names: dict[bytes, str] = field(default_factory=dict)


@dataclass(slots=True)
class Names:
    """Fresh local names of one function."""

    count: int = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"


class ScopedPrinter:
    """`loop_names[d]` is the C++ text of loop `d` (its position in memory), `loop_depth[d]` the
    scope that its body is; `local_names` replaces it in the index of a Buffer in `local`."""

    def __init__(
        self,
        loop_names: Sequence[str],
        loop_depth: Sequence[int],
        names: Names,
        local: dict[Buffer, str] | None = None,
        local_names: Sequence[str] | None = None,
    ) -> None:
        self.loop_names = list(loop_names)
        self.loop_depth = list(loop_depth)
        self.names = names
        self.local = local if local is not None else {}
        self.local_names = list(local_names if local_names is not None else loop_names)
        self.uses: Counter[bytes] = Counter()
        self.gathers = False
        self._depth_cache: dict[bytes, int] = {}

    def count_uses(self, *roots: Expr) -> None:
        """Call with every expression that is to be printed, before printing."""
        for expr in walk(*roots):
            self.uses.update(arg.key for arg in expr.args)
        self.uses.update(root.key for root in roots)

    def depth_of(self, expr: Expr) -> int:
        if isinstance(expr, Load | Gather | Index):
            depths = [self.loop_depth[d] for d, s in enumerate(expr.strides) if s != 0]
            own = max(depths, default=0)
            return max([own, *(self._depth(a) for a in expr.args)])
        return max((self._depth(a) for a in expr.args), default=0)

    def _depth(self, expr: Expr) -> int:
        if expr.key not in self._depth_cache:
            self._depth_cache[expr.key] = self.depth_of(expr)
        return self._depth_cache[expr.key]

    def pin(self, root: Expr, buffer: Buffer, depth: int) -> None:
        """Loads of `buffer` in `root` change in the scope of `depth`."""
        for leaf in leaves(root):
            if isinstance(leaf, Load) and leaf.buffer == buffer:
                self._depth_cache[leaf.key] = depth

    def text(self, root: Expr, scopes: Sequence[Scope]) -> str:
        """The C++ text of `root` in the innermost of `scopes`; adds statements where needed."""
        for expr in walk(root):
            if isinstance(expr, Masked):
                break
        else:
            self._bind_all(root, scopes)
        return self._text(root, scopes)

    def _bind_all(self, root: Expr, scopes: Sequence[Scope]) -> None:
        """Visits bottom-up, so that deep graphs need no deep recursion."""
        for expr in walk(root):
            self._text(expr, scopes)

    def _named(self, expr: Expr, scopes: Sequence[Scope]) -> str | None:
        for scope in reversed(scopes):
            if expr.key in scope.names:
                return scope.names[expr.key]
        return None

    def _text(self, expr: Expr, scopes: Sequence[Scope], guarded: bool = False) -> str:
        name = self._named(expr, scopes)
        if name is not None:
            return name
        if isinstance(expr, Const):
            return literal(expr)
        text = self._raw(expr, scopes, guarded)
        inner = scopes[-1].depth
        depth = min(self._depth(expr), inner)
        if guarded and self._reads(expr):
            return text
        wanted = self.uses[expr.key] > 1 or len(text) > _LONG
        hoisted = depth < inner and isinstance(expr, Op | Masked | Load | Gather)
        if isinstance(expr, Index) or (isinstance(expr, Load) and expr.buffer in self.local):
            wanted = hoisted = False
        if not (wanted or hoisted):
            return text
        name = self.names.fresh()
        scope = next(s for s in scopes if s.depth >= depth)
        scope.lines.append(f"const {COMPUTE_TYPE[expr.dtype]} {name} = {strip(text)};")
        scope.names[expr.key] = name
        return name

    def _reads(self, expr: Expr) -> bool:
        return any(isinstance(e, Load | Gather) and e.buffer not in self.local for e in walk(expr))

    def _raw(self, expr: Expr, scopes: Sequence[Scope], guarded: bool) -> str:
        if isinstance(expr, Load):
            return self.load(expr)
        if isinstance(expr, Index):
            text = index_text(expr.offset, expr.strides, self.loop_names)
            return f"({text})" if " " in text or text.startswith("-") else text
        if isinstance(expr, Gather):
            return self._gather(expr, scopes, guarded)
        if isinstance(expr, Masked):
            return self._masked(expr, scopes)
        assert isinstance(expr, Op)
        args = [self._text(a, scopes, guarded) for a in expr.args]
        if expr.name == "where" and not guarded:
            # Both sides are computed, so that the choice is a vector blend and no branch.
            args[1:] = [
                text if text.isidentifier() or not arg.args else self._bind(arg, text, scopes)
                for arg, text in zip(expr.args[1:], args[1:], strict=True)
            ]
        if expr.name in REPEATS and not args[0].isidentifier():
            args = [self._bind(expr.args[0], args[0], scopes)]
        return format_operation(expr.name, expr.dtype, args)

    def _bind(self, expr: Expr, text: str, scopes: Sequence[Scope]) -> str:
        name = self.names.fresh()
        scopes[-1].lines.append(f"const {COMPUTE_TYPE[expr.dtype]} {name} = {strip(text)};")
        scopes[-1].names[expr.key] = name
        return name

    def load(self, expr: Load) -> str:
        if expr.buffer in self.local:
            name = self.local[expr.buffer]
            index = index_text(expr.offset, expr.strides, self.local_names)
            return name if not any(expr.strides) else f"{name}[{index}]"
        index = index_text(expr.offset, expr.strides, self.loop_names)
        text = f"{expr.buffer.name}[{index}]"
        widened = COMPUTE_TYPE[expr.dtype]
        return (
            f"static_cast<float>({text})"
            if expr.dtype in ("float16", "bfloat16") and widened
            else text
        )

    def _gather(self, expr: Gather, scopes: Sequence[Scope], guarded: bool) -> str:
        self.gathers = True
        index = self._text(expr.args[0], scopes, guarded)
        checked = f"checked_index({strip(index)}, {expr.size}, bad)"
        rest = index_text(expr.offset, expr.strides, self.loop_names)
        scaled = checked if expr.step == 1 else f"{checked} * {expr.step}"
        text = (
            f"{expr.buffer.name}[{scaled}]"
            if rest == "0"
            else f"{expr.buffer.name}[{rest} + {scaled}]"
        )
        return f"static_cast<float>({text})" if expr.dtype in ("float16", "bfloat16") else text

    def _masked(self, expr: Masked, scopes: Sequence[Scope]) -> str:
        conditions = []
        for index, size in zip(expr.args[2:], expr.sizes, strict=True):
            conditions.append(self._condition(index, size, scopes))
        other = self._text(expr.args[1], scopes)
        value = self._text(expr.args[0], scopes, guarded=True)
        return f"({' && '.join(conditions)} ? {strip(value)} : {strip(other)})"

    def _condition(self, index: Expr, size: int, scopes: Sequence[Scope]) -> str:
        """`0 <= index < size` as one unsigned comparison; hoisted as far out as it can be."""
        text = f"inside({strip(self._text(index, scopes))}, {size})"
        depth = min(self._depth(index), scopes[-1].depth)
        if depth == scopes[-1].depth:
            return text
        key = index.key + str(size).encode()
        for scope in scopes:
            if key in scope.names:
                return scope.names[key]
        scope = next(s for s in scopes if s.depth >= depth)
        name = self.names.fresh()
        scope.lines.append(f"const bool {name} = {text};")
        scope.names[key] = name
        return name

    def store(self, target: Target, value: str) -> str:
        """The statement that stores `value`."""
        buffer = target.buffer
        if buffer in self.local:
            name = self.local[buffer]
            index = index_text(target.offset, target.strides, self.local_names)
            return (
                f"{name}[{index}] = {strip(value)};"
                if any(target.strides)
                else f"{name} = {strip(value)};"
            )
        index = index_text(target.offset, target.strides, self.loop_names)
        if buffer.dtype in ("float16", "bfloat16"):
            kind = "at::Half" if buffer.dtype == "float16" else "at::BFloat16"
            value = f"{kind}({strip(value)})"
        return f"{buffer.name}[{index}] = {strip(value)};"


def indent(lines: Sequence[str], levels: int = 1) -> list[str]:
    return ["  " * levels + line if line and not line.startswith("#") else line for line in lines]


Body = Callable[[Sequence[Scope]], None]
