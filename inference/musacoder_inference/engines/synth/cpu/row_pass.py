"""One pass along a row: vectors run over neighbouring elements of the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from musacoder_inference.engines.synth.cpu.scopes import Scope, ScopedPrinter, indent
from musacoder_inference.engines.synth.dtypes import COMPUTE_TYPE, is_float
from musacoder_inference.engines.synth.fuse import Loops
from musacoder_inference.engines.synth.ir import Buffer, Reduce, Scan, Store, Target

# Elements summed in float32 before the part goes to a double: keeps the error of a long sum near
# that of its parts.
BLOCK = 2048
# Elements searched again for the place of a maximum.
SEARCH = 256


class RowPass:
    """Prints the stages of one pass; `scopes` are those around the row, `unstored` the buffers
    that live no longer than a row, `bounds` gives a loop another range than its whole size."""

    def __init__(
        self,
        printer: ScopedPrinter,
        loops: Loops,
        scopes: Sequence[Scope],
        unstored: frozenset[Buffer] = frozenset(),
        bounds: Mapping[int, tuple[str, str]] | None = None,
    ) -> None:
        self.printer, self.loops, self.outside = printer, loops, list(scopes)
        self.unstored = unstored
        self.bounds = dict(bounds or {})
        self.outer = len(loops.outer)
        self.length = loops.inner[-1]
        self.name = printer.loop_names[-1]

    def lines(self, stages: Sequence[Reduce | Scan | Store]) -> list[str]:
        if all(isinstance(s, Store) and self._once(s) for s in stages):
            return self._per_row(stages)
        result: list[str] = []
        regular: list[Reduce | Scan | Store] = []
        for stage in stages:
            if isinstance(stage, Store) and self._once(stage):
                result += self._per_row([stage])
            elif isinstance(stage, Reduce) and stage.kind in ("argmax", "argmin"):
                result += self._locate(stage)
            else:
                regular.append(stage)
        return self._loops(regular) + result if regular else result

    def _once(self, stage: Store) -> bool:
        """Whether the store belongs to the row as a whole."""
        inner = range(self.outer, self.loops.rank)
        return prod(self.loops.inner) != 1 and not any(stage.target.strides[d] for d in inner)

    def _per_row(self, stages: Sequence[Reduce | Scan | Store]) -> list[str]:
        lines: list[str] = []
        for stage in stages:
            text = self.printer.text(stage.value, self.outside)
            lines.append(self.printer.store(stage.target, text))
        return lines

    def _nested(self) -> list[Scope]:
        """Scopes of the loops of the row, after those around it."""
        start = self.outside[-1].depth
        return [Scope(start + d + 1) for d in range(len(self.loops.inner))]

    def _loops(self, stages: Sequence[Reduce | Scan | Store]) -> list[str]:
        before: list[str] = []
        after: list[str] = []
        begin_block: list[str] = []
        end_block: list[str] = []
        clauses: list[str] = []
        nested = self._nested()
        scopes = [*self.outside, *nested]
        body = nested[-1]
        blocked = prod(self.loops.inner) > BLOCK
        serial = False
        for stage in stages:
            text = self.printer.text(stage.value, scopes)
            if isinstance(stage, Store):
                body.lines.append(self.printer.store(stage.target, text))
            elif isinstance(stage, Scan):
                serial = True
                before.append(self._scan(stage, text, body))
            else:
                parts = _Accumulator(stage, blocked)
                before += parts.before
                begin_block += parts.begin_block
                clauses += parts.clauses
                body.lines += parts.update(text)
                end_block += parts.end_block
                after += [*parts.after, *self._keep(stage, parts.result)]
        pragma = "" if serial else f"omp simd {' '.join(clauses)}".rstrip()
        if self.printer.gathers and pragma:
            pragma += " reduction(|:bad)"
        inner = self._innermost(body.lines, pragma, begin_block, end_block, blocked)
        for d in range(len(nested) - 2, -1, -1):
            inner = self._loop(d, [*nested[d].lines, *inner])
        return [*before, *inner, *after]

    def _innermost(
        self,
        body: Sequence[str],
        pragma: str,
        begin: Sequence[str],
        end: Sequence[str],
        blocked: bool,
    ) -> list[str]:
        head = [f"#pragma {pragma}"] if pragma else []
        last = len(self.loops.inner) - 1
        bounded = last in self.bounds
        if not begin and not end:
            return [*head, *self._loop(last, body)]
        if not bounded and (not blocked or self.length <= BLOCK):
            return [*begin, *head, *self._loop(last, body), *end]
        start, limit = self.bounds.get(last, ("0", str(self.length)))
        whole = not bounded and self.length % BLOCK == 0
        stop = f"block + {BLOCK}" if whole else f"std::min<int64_t>(block + {BLOCK}, {limit})"
        inside = [
            *begin,
            f"const int64_t stop = {stop};",
            *head,
            f"for (int64_t {self.name} = block; {self.name} < stop; ++{self.name}) {{",
            *indent(body),
            "}",
            *end,
        ]
        return [
            f"for (int64_t block = {start}; block < {limit}; block += {BLOCK}) {{",
            *indent(inside),
            "}",
        ]

    def _loop(self, inner: int, body: Sequence[str]) -> list[str]:
        name = self.printer.loop_names[self.outer + inner]
        start, limit = self.bounds.get(inner, ("0", str(self.loops.inner[inner])))
        return [
            f"for (int64_t {name} = {start}; {name} < {limit}; ++{name}) {{",
            *indent(body),
            "}",
        ]

    def _scan(self, stage: Scan, text: str, body: Scope) -> str:
        """Sums run in double, as torch's own do."""
        dtype = stage.target.buffer.dtype
        kind = "double" if is_float(dtype) else "int64_t"
        name = f"running_{stage.target.buffer.name}"
        body.lines.append(f"{name} {'+' if stage.kind == 'sum' else '*'}= {text};")
        value = f"static_cast<{COMPUTE_TYPE[dtype]}>({name})"
        kept = [b for b in self.printer.local if b.name == f"row_{stage.target.buffer.name}"]
        for buffer in kept:
            inner = tuple(int(d == self.loops.rank - 1) for d in range(self.loops.rank))
            body.lines.append(self.printer.store(Target(buffer, 0, inner), value))
        if stage.target.buffer not in self.unstored:
            body.lines.append(self.printer.store(stage.target, value))
        return f"{kind} {name} = {0 if stage.kind == 'sum' else 1};"

    def _keep(self, stage: Reduce, result: str) -> list[str]:
        """Names the result for later passes and stores it where others need it."""
        name = f"row_{stage.target.buffer.name}"
        lines = [f"const {COMPUTE_TYPE[stage.target.buffer.dtype]} {name} = {result};"]
        if stage.target.buffer not in self.unstored:
            lines.append(self.printer.store(stage.target, name))
        return lines

    def _locate(self, stage: Reduce) -> list[str]:
        """Index of the first maximum: the maximum of each block in vectors, and one search in the
        block that holds the largest. NaN counts as larger than everything, as torch has it."""
        nested = self._nested()
        scopes = [*self.outside, *nested]
        buffer = stage.target.buffer
        kind = COMPUTE_TYPE[stage.value.dtype]
        better = ">" if stage.kind == "argmax" else "<"
        operation = "max" if stage.kind == "argmax" else "min"
        start = worst(stage.kind == "argmax", kind)
        best, found, place = (f"{x}_{buffer.name}" for x in ("best", "found", "block_of"))
        text = self.printer.text(stage.value, scopes)
        size = self.length
        base = self._flat_base()
        search = Scope(nested[-1].depth)
        again = self.printer.text(stage.value, [*self.outside, *nested[:-1], search])
        body = [
            *nested[-1].lines,
            f"const {kind} value = {text};",
            f"top = value {better} top ? value : top;",
        ]
        clauses = f"omp simd reduction({operation}:top)"
        nan = kind in ("float", "double")
        if nan:
            body.append("nan |= value != value;")
            clauses += " reduction(|:nan)"
        match = "nan ? value != value : value == top" if nan else "value == top"
        scan = [
            *search.lines,
            f"const {kind} value = {again};",
            f"if ({match}) {{",
            *indent([f"{found} = {base + self.name};", "break;"]),
            "}",
        ]
        loop_head = f"for (int64_t {self.name} = block; {self.name} < stop; ++{self.name}) {{"
        unless, or_nan = (f"!{place} && ", " || nan") if nan else ("", "")
        note_nan = [f"{place} = nan;"] if nan else []
        block = [
            f"{kind} top = {start};",
            *(["int nan = 0;"] if nan else []),
            f"const int64_t stop = std::min<int64_t>(block + {SEARCH}, {size});",
            f"#pragma {clauses}",
            loop_head, *indent(body), "}",
            f"if ({unless}(top {better} {best}{or_nan} || {found} < 0)) {{",
            *indent([f"{best} = top;", *note_nan, loop_head, *indent(scan), "}"]),
            "}",
        ]  # fmt: skip
        inner = [
            f"for (int64_t block = 0; block < {size}; block += {SEARCH}) {{",
            *indent(block),
            "}",
        ]
        for d in range(len(nested) - 2, -1, -1):
            inner = self._loop(d, [*nested[d].lines, *inner])
        head = [f"{kind} {best} = {start};", f"int64_t {found} = -1;"]
        if nan:
            head.append(f"int {place} = 0;")
        return [*head, *inner, *self._keep(stage, found)]

    def _flat_base(self) -> str:
        """The flat index of the first element of the innermost loop, as a text prefix."""
        names = self.printer.loop_names[self.outer : -1]
        text = ""
        for position, name in enumerate(names):
            step = prod(self.loops.inner[position + 1 :])
            text += f"{name} * {step} + "
        return text


def worst(largest: bool, kind: str) -> str:
    if kind in ("float", "double"):
        return f"{'-' if largest else ''}std::numeric_limits<{kind}>::infinity()"
    return f"std::numeric_limits<{kind}>::{'lowest' if largest else 'max'}()"


class _Accumulator:
    """The C++ of one reduction along a row."""

    def __init__(self, stage: Reduce, blocked: bool) -> None:
        buffer = stage.target.buffer
        self._stage, self._kind = stage, COMPUTE_TYPE[stage.value.dtype]
        self.before: list[str] = []
        self.begin_block: list[str] = []
        self.end_block: list[str] = []
        self.after: list[str] = []
        self.clauses: list[str] = []
        self._name = f"acc_{buffer.name}"
        getattr(self, f"_{stage.kind}")(blocked)

    def update(self, text: str) -> list[str]:
        kind = self._stage.kind
        if kind in ("sum", "prod"):
            return [f"{self._name} {'+' if kind == 'sum' else '*'}= {text};"]
        if kind in ("any", "all"):
            return [f"{self._name} {'|' if kind == 'any' else '&'}= {text};"]
        better = ">" if kind == "max" else "<"
        lines = [
            f"const {self._kind} x_{self._name} = {text};",
            f"{self._name} = x_{self._name} {better} {self._name} ? x_{self._name} : {self._name};",
        ]
        if self._float:
            lines.append(f"nan_{self._name} |= x_{self._name} != x_{self._name};")
        return lines

    @property
    def _float(self) -> bool:
        return self._kind in ("float", "double")

    def _sum(self, blocked: bool) -> None:
        kind, name = self._kind, self._name
        self.clauses.append(f"reduction(+:{name})")
        self.result = name
        if kind != "float" or not blocked:
            self.before.append(f"{'int64_t' if kind == 'bool' else kind} {name} = 0;")
            return
        self.before.append(f"double total_{name} = 0;")
        self.begin_block.append(f"float {name} = 0;")
        self.end_block.append(f"total_{name} += {name};")
        self.result = f"static_cast<float>(total_{name})"

    def _prod(self, blocked: bool) -> None:
        self.before.append(f"{self._kind} {self._name} = 1;")
        self.clauses.append(f"reduction(*:{self._name})")
        self.result = self._name

    def _max(self, blocked: bool) -> None:
        self._extreme(True)

    def _min(self, blocked: bool) -> None:
        self._extreme(False)

    def _extreme(self, largest: bool) -> None:
        name = self._name
        self.before.append(f"{self._kind} {name} = {worst(largest, self._kind)};")
        self.clauses.append(f"reduction({'max' if largest else 'min'}:{name})")
        self.result = name
        if self._float:
            self.before.append(f"int nan_{name} = 0;")
            self.clauses.append(f"reduction(|:nan_{name})")
            self.result = f"nan_{name} ? std::numeric_limits<{self._kind}>::quiet_NaN() : {name}"

    def _any(self, blocked: bool) -> None:
        self.before.append(f"int {self._name} = 0;")
        self.clauses.append(f"reduction(|:{self._name})")
        self.result = f"{self._name} != 0"

    def _all(self, blocked: bool) -> None:
        self.before.append(f"int {self._name} = 1;")
        self.clauses.append(f"reduction(&:{self._name})")
        self.result = f"{self._name} != 0"
