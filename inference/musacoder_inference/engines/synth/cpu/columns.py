"""One pass over a block of neighbouring columns: vectors run across the columns, the reduced loops
step from line to line, so that memory is read in order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from musacoder_inference.engines.synth.cpu.emit import loop
from musacoder_inference.engines.synth.cpu.row_pass import worst
from musacoder_inference.engines.synth.cpu.scopes import Scope, ScopedPrinter, indent
from musacoder_inference.engines.synth.dtypes import COMPUTE_TYPE, is_float
from musacoder_inference.engines.synth.fuse import Loops
from musacoder_inference.engines.synth.ir import (
    Buffer,
    Expr,
    Load,
    Op,
    Reduce,
    Scan,
    Store,
    Target,
    leaves,
    transform,
    walk,
)
from musacoder_inference.engines.synth.operations import COSTLY

# Lines summed in one accumulator before it is added to the total, to keep rounding errors small.
BLOCK = 256
_SLOW = COSTLY | {"div", "sqrt", "rsqrt", "reciprocal"}


class ColumnPass:
    """Prints the stages of one pass for the columns `first .. first + lanes`."""

    def __init__(
        self,
        printer: ScopedPrinter,
        loops: Loops,
        lanes: int,
        scopes: Sequence[Scope],
        unstored: frozenset[Buffer],
    ) -> None:
        self.printer, self.loops, self.lanes = printer, loops, lanes
        self.outside, self.unstored = list(scopes), unstored
        self.outer = len(loops.outer)
        self.lane = tuple(int(d == self.outer - 1) for d in range(loops.rank))

    def lines(self, stages: Sequence[Reduce | Scan | Store]) -> list[str]:
        result: list[str] = []
        regular: list[Reduce | Scan | Store] = []
        for stage in stages:
            if isinstance(stage, Store) and self._once(stage):
                result += self._lane_loop([(stage.target, stage.value)])
            else:
                regular.append(stage)
        return [*self._loops(regular), *result] if regular else result

    def _once(self, stage: Store) -> bool:
        inner = range(self.outer, self.loops.rank)
        return prod(self.loops.inner) != 1 and not any(stage.target.strides[d] for d in inner)

    def _lane_loop(self, stores: Sequence[tuple[Target, Expr]]) -> list[str]:
        scope = Scope(self.loops.rank)
        for target, value in stores:
            self.printer.count_uses(value)
            text = self.printer.text(value, [*self.outside, scope])
            scope.lines.append(self.printer.store(target, text))
        return loop("lane", "lanes", scope.lines, "omp simd")

    def _array(self, name: str, kind: str, start: str) -> list[str]:
        body = [f"{name}[lane] = {start};"]
        return [f"{kind} {name}[{self.lanes}];", *loop("lane", "lanes", body)]

    def _invariants(self, value: Expr, found: list[tuple[Buffer, Expr]]) -> Expr:
        """Slow operations that do not change from line to line are computed once per column."""

        def fixed(expr: Expr) -> bool:
            return not any(any(leaf.strides[self.outer :]) for leaf in leaves(expr))

        chosen: dict[bytes, Expr] = {}
        stack, seen = [value], set()
        while stack:
            expr = stack.pop()
            if expr.key in seen or not expr.args:
                continue
            seen.add(expr.key)
            slow = any(isinstance(e, Op) and e.name in _SLOW for e in walk(expr))
            if fixed(expr) and slow and any(leaf.strides[self.outer - 1] for leaf in leaves(expr)):
                buffer = Buffer(
                    f"column_{self.printer.names.fresh()}", _wide(expr.dtype), (), "scratch"
                )
                self.printer.local[buffer] = buffer.name
                chosen[expr.key] = Load(buffer, 0, self.lane)
                found.append((buffer, expr))
            else:
                stack.extend(expr.args)
        return transform(value, lambda e: chosen.get(e.key, e)) if chosen else value

    def _loops(self, stages: Sequence[Reduce | Scan | Store]) -> list[str]:
        invariants: list[tuple[Buffer, Expr]] = []
        values = [self._invariants(s.value, invariants) for s in stages]
        before: list[str] = []
        for buffer, expr in invariants:
            before.append(f"{COMPUTE_TYPE[buffer.dtype]} {buffer.name}[{self.lanes}];")
            before += self._lane_loop([(Target(buffer, 0, self.lane), expr)])
        self.printer.count_uses(*values)
        nested = [Scope(self.outside[-1].depth + d + 1) for d in range(len(self.loops.inner))]
        body = Scope(self.loops.rank)
        scopes = [*self.outside, *nested, body]
        begin: list[str] = []
        end: list[str] = []
        after: list[str] = []
        blocked = self.loops.inner[-1] > 2 * BLOCK
        for stage, value in zip(stages, values, strict=True):
            text = self.printer.text(value, scopes)
            if isinstance(stage, Store):
                body.lines.append(self.printer.store(stage.target, text))
            elif isinstance(stage, Scan):
                before += self._scan(stage, text, body)
            else:
                before += self._reduce(stage, text, body, blocked, begin, end)
                after += self._finish(stage)
        check = " reduction(|:bad)" if self.printer.gathers else ""
        lane_loop = loop("lane", "lanes", body.lines, f"omp simd{check}")
        inner = [*nested[-1].lines, *lane_loop]
        name, size = self.printer.loop_names[-1], self.loops.inner[-1]
        if blocked and begin:
            stop = f"const int64_t stop = std::min<int64_t>(block + {BLOCK}, {size});"
            bounded = f"for (int64_t {name} = block; {name} < stop; ++{name}) {{"
            inside = [*begin, stop, bounded, *indent(inner), "}", *end]
            head = f"for (int64_t block = 0; block < {size}; block += {BLOCK}) {{"
            inner = [head, *indent(inside), "}"]
        else:
            inner = loop(name, size, inner)
        for d in range(len(nested) - 2, -1, -1):
            names = self.printer.loop_names[self.outer + d]
            inner = loop(names, self.loops.inner[d], [*nested[d].lines, *inner])
        return [*before, *inner, *after]

    def _scan(self, stage: Scan, text: str, body: Scope) -> list[str]:
        buffer = stage.target.buffer
        kind = "double" if is_float(buffer.dtype) else "int64_t"
        name = f"running_{buffer.name}"
        body.lines.append(f"{name}[lane] {'+' if stage.kind == 'sum' else '*'}= {text};")
        value = f"static_cast<{COMPUTE_TYPE[buffer.dtype]}>({name}[lane])"
        for kept in [b for b in self.printer.local if b.name == f"row_{buffer.name}"]:
            strides = (*self.lane[:-1], self.lanes)
            body.lines.append(self.printer.store(Target(kept, 0, strides), value))
        if buffer not in self.unstored:
            body.lines.append(self.printer.store(stage.target, value))
        return self._array(name, kind, "0" if stage.kind == "sum" else "1")

    def _reduce(
        self, stage: Reduce, text: str, body: Scope, blocked: bool, begin: list[str], end: list[str]
    ) -> list[str]:
        buffer, kind = stage.target.buffer, COMPUTE_TYPE[stage.value.dtype]
        name = f"row_{buffer.name}"
        at = f"{name}[lane]"
        if stage.kind == "sum" and blocked and kind == "float":
            begin += self._array(f"part_{buffer.name}", kind, "0")
            body.lines.append(f"part_{buffer.name}[lane] += {text};")
            end += loop("lane", "lanes", [f"{at} += part_{buffer.name}[lane];"], "omp simd")
            return self._array(name, kind, "0")
        if stage.kind in ("sum", "prod"):
            kind = "int64_t" if kind == "bool" else kind
            body.lines.append(f"{at} {'+' if stage.kind == 'sum' else '*'}= {text};")
            return self._array(name, kind, "0" if stage.kind == "sum" else "1")
        if stage.kind in ("any", "all"):
            body.lines.append(f"{at} = {at} {'|' if stage.kind == 'any' else '&'} ({text});")
            return self._array(name, "bool", "false" if stage.kind == "any" else "true")
        largest = stage.kind in ("max", "argmax")
        value = f"x_{buffer.name}"
        body.lines.append(f"const {kind} {value} = {text};")
        best = at if stage.kind in ("max", "min") else f"best_{buffer.name}[lane]"
        better = f"{value} {'>' if largest else '<'} {best}"
        if kind in ("float", "double"):
            test = f"{better} || {value} != {value}"
            if stage.kind not in ("max", "min"):
                # The first NaN stays.
                test = f"({better} || {value} != {value}) && {best} == {best}"
        else:
            test = better
        if stage.kind in ("max", "min"):
            if kind in ("float", "double"):
                # Once NaN, always NaN: a comparison with NaN is false.
                body.lines.append(f"{best} = ({better} || {value} != {value}) ? {value} : {best};")
            else:
                body.lines.append(f"{best} = {better} ? {value} : {best};")
            return self._array(name, kind, worst(largest, kind))
        body.lines.append(f"const bool take_{buffer.name} = {test};")
        body.lines.append(f"{best} = take_{buffer.name} ? {value} : {best};")
        body.lines.append(
            f"{at} = take_{buffer.name} ? static_cast<int32_t>({self._flat()}) : {at};"
        )
        return [
            *self._array(f"best_{buffer.name}", kind, worst(largest, kind)),
            *self._array(name, "int32_t", "0"),
        ]

    def _flat(self) -> str:
        names = self.printer.loop_names[self.outer :]
        parts = [
            f"{name} * {prod(self.loops.inner[d + 1 :])}" if d + 1 < len(names) else name
            for d, name in enumerate(names)
        ]
        return " + ".join(parts)

    def _finish(self, stage: Reduce) -> list[str]:
        buffer = stage.target.buffer
        if buffer in self.unstored:
            return []
        return loop("lane", "lanes", [self.printer.store(stage.target, f"row_{buffer.name}[lane]")])


def _wide(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype
