"""The precompiled facade is used for the flags of a request, and the text where it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from musacoder_verifier import tools
from musacoder_verifier.lanes import precompiled
from musacoder_verifier.lanes.prepare import INCLUDE, Prepared, facade_includes
from musacoder_verifier.toolchain import Compiler

BASE = ("-O3", "-march=native", "-fopenmp", "-std=c++20")
TEXT = INCLUDE / "torch" / "extension.h"


@pytest.mark.parametrize(
    ("extra", "added"),
    [
        ((), []),
        (("-O3", "-fopenmp"), []),
        (("-O2",), ["-O2"]),
        (("-O2", "-O3"), ["-O2", "-O3"]),
        (("-fno-openmp", "-fopenmp"), ["-fno-openmp", "-fopenmp"]),
        (("-march=x86-64-v2",), ["-march=x86-64-v2"]),
        (("-DN=1", "-DN=1", "-UN"), ["-DN=1", "-UN"]),
        (("-fno-math-errno", "-fno-math-errno"), ["-fno-math-errno"]),
    ],
)
def test_a_flag_in_force_is_not_repeated(extra: tuple[str, ...], added: list[str]) -> None:
    assert precompiled.combined(BASE, extra) == [*BASE, *added]


async def _header_line(
    prepared: Prepared, compiler: Compiler, flags: tuple[str, ...], header: Path, folder: Path
) -> str:
    """The line of gcc's `-H` about the header: `!` before a precompiled one that it took."""
    unit = folder / "unit.cpp"
    unit.write_text("#include <torch/extension.h>\n", encoding="utf-8")
    result = await tools.run(
        [compiler.path, *flags, "-H", "-fsyntax-only", "-include", str(header),
         *facade_includes(prepared.folder), str(unit)],
        cwd=folder, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.output
    return next(line for line in result.output.splitlines() if ".gch" in line)


@pytest.mark.asyncio(loop_scope="session")
async def test_flags_of_a_request_get_their_own(
    prepared: Prepared, compiler: Compiler, native_flags: tuple[str, ...], tmp_path: Path
) -> None:
    if compiler.family != "gcc":
        pytest.skip("clang reads the text for other flags")
    # What synth asks for on the cpu backend: they decide a macro of the compiler's own.
    extra = ("-O3", "-fno-trapping-math", "-fno-math-errno")
    flags = (*native_flags, *extra)
    line = await _header_line(prepared, compiler, flags, prepared.prefix, tmp_path)
    assert line.startswith("x "), "gcc took a header that was made for other flags"
    made = await precompiled.header(prepared, compiler, native_flags, extra, 120)
    assert made != prepared.prefix
    line = await _header_line(prepared, compiler, flags, made, tmp_path)
    assert line.startswith("! ")
    again = await precompiled.header(prepared, compiler, native_flags, extra, 120)
    assert again == made


@pytest.mark.asyncio(loop_scope="session")
async def test_no_request_fails_for_want_of_one(
    prepared: Prepared, compiler: Compiler, native_flags: tuple[str, ...]
) -> None:
    same = await precompiled.header(prepared, compiler, native_flags, native_flags[:1], 120)
    assert same == prepared.prefix
    for extra in (("-include", "mine.h"), ("-fno-such-flag-anywhere",)):
        assert await precompiled.header(prepared, compiler, native_flags, extra, 120) == TEXT
