"""Removes copies: a stage whose result is only rearranged writes to the final place at once, and a
matrix product takes the pointwise work on its result as an epilogue."""

from __future__ import annotations

from dataclasses import replace

from musacoder_inference.engines.synth.ir import (
    Buffer,
    Expr,
    Gather,
    Load,
    Matmul,
    Program,
    Stage,
    Store,
    Target,
    leaves,
    regroup_strides,
    reindex,
    transform,
    try_reshape,
)


def stage_values(stage: Stage) -> tuple[Expr, ...]:
    """The expressions that a stage evaluates."""
    if isinstance(stage, Matmul):
        return (stage.left, stage.right) + ((stage.epilogue,) if stage.epilogue is not None else ())
    return (stage.value,)


def buffers_read(stage: Stage) -> set[Buffer]:
    return {leaf.buffer for leaf in leaves(*stage_values(stage)) if isinstance(leaf, Load | Gather)}


def eliminate_copies(program: Program) -> None:
    """Rewrites `program.stages` in place until nothing changes."""
    _drop_unread(program)
    while _fold_one_copy(program) or _fuse_one_epilogue(program):
        pass


def _drop_unread(program: Program) -> None:
    """Removes stages whose result nothing reads."""
    read: set[Buffer] = set(program.results)
    kept: list[Stage] = []
    for stage in reversed(program.stages):
        if stage.target.buffer in read:
            kept.append(stage)
            read |= buffers_read(stage)
    program.stages[:] = reversed(kept)


def _writers(program: Program, buffer: Buffer) -> list[int]:
    return [i for i, stage in enumerate(program.stages) if stage.target.buffer == buffer]


def _readers(program: Program, buffer: Buffer) -> list[int]:
    return [i for i, stage in enumerate(program.stages) if buffer in buffers_read(stage)]


def _fold_one_copy(program: Program) -> bool:
    for position, stage in enumerate(program.stages):
        if not isinstance(stage, Store) or not isinstance(stage.value, Load):
            continue
        source = stage.value.buffer
        if source.role != "scratch" or source.dtype != stage.target.buffer.dtype:
            continue
        writers = _writers(program, source)
        if not writers or writers[-1] > position:
            continue
        placed = _placement(stage, stage.value)
        if placed is None:
            continue
        moved = [_retarget(program.stages[i].target, source, placed) for i in writers]
        if any(target is None for target in moved):
            continue
        others = [i for i in _readers(program, source) if i != position]
        if others and not _substitute_readers(program, others, source, placed):
            continue
        for i, target in zip(writers, moved, strict=True):
            assert target is not None
            program.stages[i] = replace(program.stages[i], target=target)
        del program.stages[position]
        return True
    return False


def _placement(store: Store, value: Load) -> Target | None:
    """Where each element of the copied buffer goes, as strides over the buffer's own shape, if the
    copy visits every element once."""
    source = value.buffer
    if store.shape and 0 in store.shape:
        return None
    dims = [d for d, n in enumerate(store.shape) if n != 1]
    wanted = [(n, s) for n, s in zip(source.shape, source.strides, strict=True) if n != 1]
    offset, start = store.target.offset, value.offset
    placed: dict[int, int] = {}
    by_step = {(store.shape[d], abs(value.strides[d])): d for d in dims}
    if len(by_step) == len(dims) == len(wanted) and all(w in by_step for w in wanted):
        for size, step in wanted:
            d = by_step[(size, step)]
            direction = 1 if value.strides[d] > 0 else -1
            placed[step] = direction * store.target.strides[d]
            if direction < 0:
                offset += store.target.strides[d] * (size - 1)
                start -= step * (size - 1)
        if start != 0:
            return None
        strides = tuple(
            0 if n == 1 else placed[s] for n, s in zip(source.shape, source.strides, strict=True)
        )
        return Target(store.target.buffer, offset, strides)
    flat = regroup_strides(store.shape, value.strides, source.shape)
    regrouped = regroup_strides(store.shape, store.target.strides, source.shape)
    if flat is None or regrouped is None or value.offset != 0:
        return None
    same = all(n == 1 or a == b for n, a, b in zip(source.shape, flat, source.strides, strict=True))
    return Target(store.target.buffer, offset, regrouped) if same else None


def _coordinates(offset: int, buffer: Buffer) -> list[int]:
    result = []
    for size, stride in zip(buffer.shape, buffer.strides, strict=True):
        result.append(offset // stride if size != 1 else 0)
        offset -= result[-1] * stride
    return result


def _retarget(target: Target, source: Buffer, placed: Target) -> Target | None:
    """`target`, which writes to `source`, writing to the place of the copy instead."""
    if len(target.strides) < len(source.shape):
        return None
    offset = placed.offset + sum(
        c * s for c, s in zip(_coordinates(target.offset, source), placed.strides, strict=True)
    )
    strides = _map_strides(target.strides, source, placed)
    return None if strides is None else Target(placed.buffer, offset, strides)


def _map_strides(
    strides: tuple[int, ...], source: Buffer, placed: Target
) -> tuple[int, ...] | None:
    """Loop strides in `source` as loop strides in the place of the copy; each loop may move along
    one dimension of `source` only."""
    result = []
    for stride in strides:
        if stride == 0:
            result.append(0)
            continue
        found = None
        for size, step, to in zip(source.shape, source.strides, placed.strides, strict=True):
            if size != 1 and stride % step == 0 and abs(stride) < step * size:
                found = (stride // step) * to
                break
        if found is None:
            return None
        result.append(found)
    return tuple(result)


def _substitute_readers(
    program: Program, readers: list[int], source: Buffer, placed: Target
) -> bool:
    """Lets the other readers read the final place; only for plain loads."""
    changed: dict[int, Stage] = {}
    for i in readers:
        stage = program.stages[i]
        new: dict[Load, Load] = {}
        for leaf in leaves(*stage_values(stage)):
            if isinstance(leaf, Gather) and leaf.buffer == source:
                return False
            if isinstance(leaf, Load) and leaf.buffer == source:
                strides = _map_strides(leaf.strides, source, placed)
                if strides is None or leaf.offset != 0:
                    return False
                new[leaf] = Load(placed.buffer, placed.offset, strides)
        changed[i] = map_values(stage, lambda e, new=new: substitute(e, new))
    for i, stage in changed.items():
        program.stages[i] = stage
    return True


def substitute(root: Expr, table: dict[Load, Load] | dict[Load, Expr]) -> Expr:
    return transform(root, lambda e: table.get(e, e) if isinstance(e, Load) else e)


def map_values(stage: Stage, change: object) -> Stage:
    """`stage` with `change` applied to its expressions."""
    assert callable(change)
    if isinstance(stage, Matmul):
        epilogue = None if stage.epilogue is None else change(stage.epilogue)
        return replace(stage, left=change(stage.left), right=change(stage.right), epilogue=epilogue)
    return replace(stage, value=change(stage.value))


def _fuse_one_epilogue(program: Program) -> bool:
    for position, stage in enumerate(program.stages):
        if not isinstance(stage, Matmul) or stage.epilogue is not None:
            continue
        buffer = stage.target.buffer
        readers = _readers(program, buffer)
        if buffer.role != "scratch" or len(readers) != 1 or len(_writers(program, buffer)) != 1:
            continue
        consumer = program.stages[readers[0]]
        fused = _with_epilogue(stage, consumer)
        if fused is None:
            continue
        program.stages[readers[0]] = fused
        del program.stages[position]
        return True
    return False


def _with_epilogue(stage: Matmul, consumer: Stage) -> Matmul | None:
    if not isinstance(consumer, Store):
        return None
    shape = (*stage.batch, *stage.m, *stage.n)
    buffer = stage.target.buffer
    value = _reshape_through(consumer, shape)
    if value is None:
        return None
    expr, target = value
    for leaf in leaves(expr):
        if isinstance(leaf, Gather) and leaf.buffer == buffer:
            return None
        if (
            isinstance(leaf, Load)
            and leaf.buffer == buffer
            and not _same_element(leaf, stage, shape)
        ):
            return None
    dtype = "float64" if buffer.dtype == "float64" else "float32"
    accumulator = Buffer("sum", dtype, (), "scratch")
    zero = (0,) * len(shape)

    def rewrite(e: Expr) -> Expr:
        return Load(accumulator, 0, zero) if isinstance(e, Load) and e.buffer == buffer else e

    return replace(stage, target=target, epilogue=transform(expr, rewrite), accumulator=accumulator)


def _same_element(leaf: Load, stage: Matmul, shape: tuple[int, ...]) -> bool:
    pairs = zip(shape, leaf.strides, stage.target.strides, strict=True)
    return leaf.offset == stage.target.offset and all(n == 1 or a == b for n, a, b in pairs)


def _reshape_through(store: Store, shape: tuple[int, ...]) -> tuple[Expr, Target] | None:
    """A store's value and target over another shape of the same number of elements, also where
    the store runs over a permutation of it."""
    strides = regroup_strides(store.shape, store.target.strides, shape)
    expr = try_reshape(store.value, store.shape, shape)
    if strides is not None and expr is not None:
        return expr, Target(store.target.buffer, store.target.offset, strides)
    if sorted(store.shape) != sorted(shape) or len(set(shape)) != len(shape):
        return None
    order = [store.shape.index(n) for n in shape]
    target = Target(
        store.target.buffer, store.target.offset, tuple(store.target.strides[d] for d in order)
    )
    return reindex(store.value, lambda o, s: (o, tuple(s[d] for d in order))), target
