"""Faults of the machine while something is compiled: no Candidate is blamed for them."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from musacoder_verifier.lanes.fast import LaneResult
from musacoder_verifier.verdict import Failure


def of_error(error: OSError, cache_dir: Path) -> Failure:
    """A file that cannot be written, most often on a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        sentence = f"the disk of {cache_dir} is full; free some space and try again"
    else:
        sentence = f"nothing can be compiled in {cache_dir}: {error.strerror or error}"
    return Failure("infra_error", "compile", sentence)


# What gcc, clang, and their linker driver say of a part of theirs that a signal ended.
_KILLED = re.compile(
    r"signal terminated program|terminated with signal|command failed due to signal"
    r"|command killed by signal",
    re.IGNORECASE,
)


def cut_short(result: LaneResult) -> bool:
    """Whether a signal ended the compiler: it said so of a part of it, or nothing at all."""
    return not result.output.strip() or _KILLED.search(result.output) is not None


def of_output(output: str, cache_dir: Path) -> Failure | None:
    """A failure of the machine that a compiler reports as an error of its own."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return of_error(OSError(errno.ENOSPC, ""), cache_dir)
    if "cc1plus: out of memory" in output or "virtual memory exhausted" in output:
        return Failure("infra_error", "compile", "the compiler ran out of memory")
    if _KILLED.search(output) or "internal compiler error" in output:
        return Failure(
            "infra_error", "compile", "the compiler itself crashed or was killed", output[-4000:]
        )
    return None
