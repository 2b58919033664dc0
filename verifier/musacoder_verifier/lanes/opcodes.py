"""Which narrow arithmetic the device code of an object contains, read from its machine code.

`cuobjdump -sass` prints one instruction a line. A matrix instruction names the types it multiplies
(`HMMA.1688.F32.TF32`, `HMMA.16816.F32` with half operands, `HGMMA.64x64x16.F32.BF16`), so that a
task in float32 that multiplies in fewer bits shows, whatever the source calls it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from musacoder_verifier import tools
from musacoder_verifier.toolchain import cuda_toolkit

_SECONDS = 20.0
_MATRIX = re.compile(r"\b((?:[HQI]|B|O)?G?MMA|UTC[HQI]MMA|HFMA2|HMUL2|HADD2)((?:\.\w+)*)")
# How compilers load a constant into a register, whatever it is.
_CONSTANT = re.compile(r"\bHFMA2(?:\.\w+)*\s+U?R\d+, -RZ, RZ,")
# F2F.F16.F32 and F2FP.BF16.F32.PACK_AB round float32 values to 16 bits.
_ROUNDING = re.compile(r"\b(F2FP?)\.((?:\w+\.)*?)(F16|BF16|TF32|E4M3|E5M2)\b((?:\.\w+)*)")


def disassembler() -> str | None:
    """cuobjdump beside the device compiler, or on PATH; None where there is none."""
    toolkit = cuda_toolkit()
    if toolkit is not None:
        beside = Path(toolkit.compiler).parent / "cuobjdump"
        if beside.is_file() and os.access(beside, os.X_OK):
            return str(beside)
    return shutil.which("cuobjdump")


async def narrow_arithmetic(path: str | Path, program: str) -> tuple[str, ...]:
    """Instructions of an object's device code that compute in fewer bits than float32, sorted.
    Raises OSError and tools.ToolError; nothing where the program cannot read the object."""
    result = await tools.run([program, "-sass", str(path)], cwd=Path(path).parent, timeout=_SECONDS)
    return tuple(sorted(narrow(result.output))) if result.returncode == 0 else ()


def narrow(listing: str) -> Mapping[str, int]:
    """Instruction -> how often it stands in a listing of machine code."""
    found: Counter[str] = Counter()
    for line in listing.splitlines():
        if _CONSTANT.search(line):
            continue
        match = _MATRIX.search(line) or _ROUNDING.search(line)
        if match is not None and not match[0].startswith(("IMMA", "DMMA", "IGMMA")):
            found[match[0]] += 1
    return found
