"""One `__global__` kernel per stage: a thread per element, a block per reduced row, a thread per
scanned row, and a tiled matrix product through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from musacoder_inference.engines.synth.cpu.row_pass import worst
from musacoder_inference.engines.synth.cpu.scopes import Names, Scope, ScopedPrinter, indent
from musacoder_inference.engines.synth.dtypes import COMPUTE_TYPE, is_float
from musacoder_inference.engines.synth.ir import (
    Buffer,
    Expr,
    Load,
    Matmul,
    Reduce,
    Scan,
    Stage,
    Store,
)

THREADS = 256
TILE = 16


@dataclass(frozen=True, slots=True)
class Launch:
    """The body of a kernel, and its grid and block: x, y and z, as many as are not 1."""

    body: list[str]
    grid: tuple[int, ...]
    block: tuple[int, ...]


def print_stage(stage: Stage) -> Launch:
    if isinstance(stage, Store):
        return _store(stage)
    if isinstance(stage, Reduce):
        return _reduce(stage)
    if isinstance(stage, Scan):
        return _scan(stage)
    return _matmul(stage)


def _split(flat: str, names: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """Coordinates of a flat index."""
    lines = []
    for d, (name, size) in enumerate(zip(names, sizes, strict=True)):
        step = prod(sizes[d + 1 :])
        text = flat if step == 1 else f"{flat} / {step}"
        lines.append(f"const int64_t {name} = {text if d == 0 else f'{text} % {size}'};")
    return lines


def _blocks(count: int) -> tuple[int]:
    return (-(-count // THREADS),)


def _printed(printer: ScopedPrinter, value: Expr) -> tuple[list[str], str]:
    printer.count_uses(value)
    scope = Scope(0)
    text = printer.text(value, [scope])
    lines = ["int bad = 0;", *scope.lines] if printer.gathers else scope.lines
    return lines, text


def _store(stage: Store) -> Launch:
    names = [f"i{d}" for d in range(len(stage.shape))]
    printer = ScopedPrinter(names, [0] * len(names), Names())
    lines, text = _printed(printer, stage.value)
    count = prod(stage.shape)
    body = [
        "const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;",
        f"if (i >= {count}) return;",
        *_split("i", names, stage.shape),
        *lines,
        printer.store(stage.target, text),
    ]
    return Launch(body, _blocks(count), (THREADS,))


def _parts(stage: Reduce | Scan) -> tuple[list[str], list[int], list[int]]:
    dims = stage.dims if isinstance(stage, Reduce) else (stage.dim,)
    names = [f"r{d}" if d in dims else f"i{d}" for d in range(len(stage.shape))]
    return names, [d for d in range(len(stage.shape)) if d not in dims], list(dims)


def _combine(kind: str, a: str, b: str) -> str:
    return {
        "sum": f"{a} + {b}",
        "prod": f"{a} * {b}",
        "max": f"larger({a}, {b})",
        "min": f"smaller({a}, {b})",
        "any": f"{a} || {b}",
        "all": f"{a} && {b}",
    }[kind]


def _start(kind: str, c_type: str) -> str:
    fixed = {"sum": "0", "prod": "1", "any": "false", "all": "true"}
    return fixed.get(kind) or worst(kind.endswith("max"), c_type)


def _reduce(stage: Reduce) -> Launch:
    """Every thread takes each 256th element, then the block joins in a tree."""
    names, outer, inner = _parts(stage)
    printer = ScopedPrinter(names, [0] * len(names), Names())
    lines, text = _printed(printer, stage.value)
    rows = prod(stage.shape[d] for d in outer)
    length = prod(stage.shape[d] for d in inner)
    c_type = COMPUTE_TYPE[stage.value.dtype]
    placed = stage.kind in ("argmax", "argmin")
    body = [
        "const int64_t row = blockIdx.x;",
        *_split("row", [names[d] for d in outer], [stage.shape[d] for d in outer]),
        f"__shared__ {c_type} values[{THREADS}];",
        *([f"__shared__ int64_t places[{THREADS}];"] if placed else []),
        f"{c_type} best = {_start(stage.kind, c_type)};",
        *(["int64_t place = -1;"] if placed else []),
        f"for (int64_t r = threadIdx.x; r < {length}; r += {THREADS}) {{",
        *indent(_split("r", [names[d] for d in inner], [stage.shape[d] for d in inner])),
        *indent(lines),
        f"  const {c_type} value = {text};",
        *indent(_take(stage.kind)),
        "}",
        "values[threadIdx.x] = best;",
        *(["places[threadIdx.x] = place;"] if placed else []),
        "__syncthreads();",
        f"for (int step = {THREADS // 2}; step > 0; step /= 2) {{",
        "  if (threadIdx.x < step) {",
        *indent(_join(stage.kind), 2),
        "  }",
        "  __syncthreads();",
        "}",
        "if (threadIdx.x == 0) {",
        "  " + printer.store(stage.target, "places[0]" if placed else "values[0]"),
        "}",
    ]
    return Launch(body, (max(rows, 1),), (THREADS,))


def _better(kind: str, value: str, best: str) -> str:
    """NaN wins, the first one stays; `place < 0` takes the first element whatever it is."""
    sign = ">" if kind == "argmax" else "<"
    return f"{value} {sign} {best} || ({value} != {value} && {best} == {best})"


def _take(kind: str) -> list[str]:
    if kind not in ("argmax", "argmin"):
        return [f"best = {_combine(kind, 'best', 'value')};"]
    return [
        f"if (place < 0 || {_better(kind, 'value', 'best')}) {{",
        "  best = value;",
        "  place = r;",
        "}",
    ]


def _join(kind: str) -> list[str]:
    mine, other = "values[threadIdx.x]", "values[threadIdx.x + step]"
    if kind not in ("argmax", "argmin"):
        return [f"{mine} = {_combine(kind, mine, other)};"]
    return [
        "const int64_t a = places[threadIdx.x], b = places[threadIdx.x + step];",
        f"const auto x = {mine}, y = {other};",
        "const bool equal = x == y || (x != x && y != y);",
        f"if (b >= 0 && (a < 0 || (equal ? b < a : ({_better(kind, 'y', 'x')})))) {{",
        f"  {mine} = y;",
        "  places[threadIdx.x] = b;",
        "}",
    ]


def _scan(stage: Scan) -> Launch:
    names, outer, inner = _parts(stage)
    printer = ScopedPrinter(names, [0] * len(names), Names())
    lines, text = _printed(printer, stage.value)
    rows = prod(stage.shape[d] for d in outer)
    loop = names[inner[0]]
    dtype = stage.target.buffer.dtype
    kind = "double" if is_float(dtype) else "int64_t"
    step = "+=" if stage.kind == "sum" else "*="
    body = [
        "const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;",
        f"if (row >= {rows}) return;",
        *_split("row", [names[d] for d in outer], [stage.shape[d] for d in outer]),
        f"{kind} running = {0 if stage.kind == 'sum' else 1};",
        f"for (int64_t {loop} = 0; {loop} < {stage.shape[inner[0]]}; ++{loop}) {{",
        *indent(lines),
        f"  running {step} {text};",
        "  " + printer.store(stage.target, f"static_cast<{COMPUTE_TYPE[dtype]}>(running)"),
        "}",
    ]
    return Launch(body, _blocks(rows), (THREADS,))


def _matmul(stage: Matmul) -> Launch:
    """TILE x TILE results per block; tiles of both operands go through shared memory."""
    m, n, k = (prod(part) for part in (stage.m, stage.n, stage.k))
    ranks = [len(part) for part in (stage.batch, stage.m, stage.n, stage.k)]
    batch, rows, columns, depth = (
        [f"{letter}{d}" for d in range(rank)] for letter, rank in zip("bmnk", ranks, strict=True)
    )
    c_type = "double" if stage.target.buffer.dtype == "float64" else "float"
    printer = ScopedPrinter([*batch, *rows, *columns, *depth], [0] * sum(ranks), Names())
    left_lines, left = _printed(printer, stage.left)
    right_printer = ScopedPrinter(printer.loop_names, [0] * sum(ranks), printer.names)
    right_lines, right = _printed(right_printer, stage.right)
    accumulator = stage.accumulator or Buffer("sum", "float32", (), "scratch")
    result = stage.epilogue or Load(accumulator, 0, (0,) * (sum(ranks) - ranks[3]))
    names = [*batch, *rows, *columns]
    store = ScopedPrinter(names, [0] * len(names), printer.names, {accumulator: "sum"})
    result_lines, text = _printed(store, result)
    body = [
        f"__shared__ {c_type} left[{TILE}][{TILE}];",
        f"__shared__ {c_type} right[{TILE}][{TILE}];",
        "const int64_t batch = blockIdx.z;",
        f"const int64_t row = blockIdx.y * static_cast<int64_t>({TILE}) + threadIdx.y;",
        f"const int64_t column = blockIdx.x * static_cast<int64_t>({TILE}) + threadIdx.x;",
        *_split("batch", batch, stage.batch),
        *_split("row", rows, stage.m),
        *_split("column", columns, stage.n),
        f"{c_type} sum = 0;",
        f"for (int64_t first = 0; first < {k}; first += {TILE}) {{",
        "  left[threadIdx.y][threadIdx.x] = 0;",
        "  right[threadIdx.y][threadIdx.x] = 0;",
        f"  if (row < {m} && first + threadIdx.x < {k}) {{",
        "    const int64_t p = first + threadIdx.x;",
        *indent([*_split("p", depth, stage.k), *left_lines], 2),
        f"    left[threadIdx.y][threadIdx.x] = {left};",
        "  }",
        f"  if (column < {n} && first + threadIdx.y < {k}) {{",
        "    const int64_t p = first + threadIdx.y;",
        *indent([*_split("p", depth, stage.k), *right_lines], 2),
        f"    right[threadIdx.y][threadIdx.x] = {right};",
        "  }",
        "  __syncthreads();",
        f"  for (int p = 0; p < {TILE}; ++p) sum += left[threadIdx.y][p] * right[p][threadIdx.x];",
        "  __syncthreads();",
        "}",
        f"if (row >= {m} || column >= {n}) return;",
        *result_lines,
        store.store(stage.target, text),
    ]
    return Launch(body, (-(-n // TILE), -(-m // TILE), prod(stage.batch)), (TILE, TILE))
