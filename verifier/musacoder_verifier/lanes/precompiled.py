"""The facade precompiled for the exact flags of a request.

gcc takes a precompiled header only for the flags that it was made with, because they decide macros
such as `__NO_MATH_ERRNO__`, and otherwise reads the text without a word, which is most of the time
of a small compile. So each set of flags that requests come with gets a precompiled form of its own,
made once. Where it cannot be made the text does the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from filelock import AsyncFileLock, Timeout

from musacoder_verifier import tools
from musacoder_verifier.artefacts import ArtefactCache, content_key
from musacoder_verifier.lanes.prepare import INCLUDE, Prepared, facade_includes
from musacoder_verifier.toolchain import Compiler

# Flags that decide what a header means. Others are left to the compile itself.
_DECIDING = re.compile(r"-[fmODUg]\S|-O$|-g$|-std=|-pthread$|-ansi$|-W\w|-w$")
_TEXT = INCLUDE / "torch" / "extension.h"


def combined(flags: Sequence[str], extra: Sequence[str]) -> list[str]:
    """`flags` and then those of `extra` that change something: a flag that is in force already
    changes nothing."""
    kept = list(flags)
    for flag in extra:
        if _in_force(flag, kept):
            continue
        kept.append(flag)
    return kept


def _in_force(flag: str, kept: Sequence[str]) -> bool:
    last = next((item for item in reversed(kept) if _subject(item) == _subject(flag)), None)
    return last == flag


def _subject(flag: str) -> str:
    """What a flag sets: of two flags with one subject the later one counts."""
    if flag.startswith("-O"):
        return "-O"
    found = re.match(r"-([fmW])(?:no-)?([^=]+)", flag) or re.match(r"-(D|U)([^=]+)", flag)
    if found is not None:
        kind, name = found.groups()
        return f"-D{name}" if kind in "DU" else f"-{kind}{name}"
    return flag.partition("=")[0]


async def header(
    prepared: Prepared,
    compiler: Compiler,
    flags: Sequence[str],
    extra: Sequence[str],
    timeout: float,
) -> Path:
    """The header to force into a unit that is compiled with `flags` and `extra`, with its
    precompiled form beside it where there can be one. Raises nothing for a failure to make it."""
    together = combined(flags, extra)
    if together == list(flags):
        return prepared.prefix
    if compiler.family != "gcc" or not all(map(_DECIDING.match, extra)):
        # clang refuses a precompiled header that does not fit, instead of reading the text.
        return _TEXT
    key = content_key("precompiled", prepared.key, together)
    store = ArtefactCache(prepared.store)
    found = await asyncio.to_thread(store.find, key)
    if found is not None:
        return found / "prefix.h"
    try:
        # Whoever comes while another makes it reads the text: that is sooner than to wait.
        async with AsyncFileLock(prepared.store / f"{key[:16]}.lock", timeout=0):
            return await _made(store, key, prepared, compiler, together, timeout)
    except (OSError, Timeout, tools.ToolError):
        return _TEXT


async def _made(
    store: ArtefactCache,
    key: str,
    prepared: Prepared,
    compiler: Compiler,
    flags: Sequence[str],
    timeout: float,
) -> Path:
    found = await asyncio.to_thread(store.find, key)
    if found is not None:
        return found / "prefix.h"
    with store.building() as folder:
        text = folder / "prefix.h"
        await asyncio.to_thread(text.write_bytes, prepared.prefix.read_bytes())
        result = await tools.run(
            [compiler.path, *flags, *facade_includes(prepared.folder), "-x", "c++-header",
             str(text), "-o", f"{text}.gch"],
            cwd=folder, timeout=timeout,
        )  # fmt: skip
        if result.returncode != 0:
            return _TEXT
        entry = await asyncio.to_thread(store.publish, key, folder)
    return entry / "prefix.h"
