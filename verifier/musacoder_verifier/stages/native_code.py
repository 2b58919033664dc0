"""What was compiled, as legality sees it: symbols, build flags, machine code, the sources' kernels.

Facts only; `stages.legality` makes findings of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from musacoder_verifier import tools
from musacoder_verifier.build_request import Artefact, BuildRequest, SourceText
from musacoder_verifier.lanes import opcodes, symbols

# Flags that let a compiler change results; what each backend passes itself is not in a request.
_FAST_MATH = re.compile(
    r"""^(?: --?use_fast_math | -ffast-math | -Ofast | -funsafe-math-optimizations
      | -fassociative-math | -freciprocal-math | -ffinite-math-only | -fno-signed-zeros
      | --?ftz=true | --?prec-div=false | --?prec-sqrt=false | -ffp-model=fast )$""",
    re.VERBOSE,
)
_PRAGMA = re.compile(r"(?:optimize\s*\(|GCC\s+optimize\s*\(?)[^)\n]*(?:fast-math|Ofast)")
# A part of the cache set aside for good, which no flush reaches.
_PERSISTING = re.compile(
    r"\b(?:[cm]u\w*[Ll]imitPersistingL2CacheSize|(?:cuda|musa)AccessPropertyPersisting"
    r"|CU_LIMIT_PERSISTING_L2_CACHE_SIZE|CU_ACCESS_PROPERTY_PERSISTING)\b"
)
# CUB and Thrust bring NVTX, whose functions look for a profiler that wants to listen.
_BRINGS_LOADERS = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*<(?:cub|thrust|nvtx3|cuda)/", re.MULTILINE
)
# Of host code, whose instructions are not read, and of device code where they cannot be.
_NARROW_TYPE = re.compile(
    r"\b(?:BFloat16|Half|_Float16|__bf16|_mm\d*_\w*(?:ph|bh)\b\w*|__half2?|half2|__nv_bfloat162?"
    r"|nv_bfloat16|__float2half\w*|__float2bfloat16\w*|__float_to_tf32|__nv_fp8_\w+)\b"
)
_COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
_KERNEL = re.compile(r"\b__global__\b[^;{]*?\b(\w+)\s*\(", re.DOTALL)
_ATTRIBUTE = re.compile(r"__launch_bounds__\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fact stands in the Candidate's file, 1-based; None where it is not known."""

    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class NativeCode:
    """Of all extensions together; each tuple sorted and without repetitions."""

    extensions: int = 0
    paths: tuple[str, ...] = ()  # of everything that we load ourselves
    operators: tuple[Place, ...] = ()  # PyTorch operators
    vendor: tuple[Place, ...] = ()  # functions of cuBLAS, cuDNN, MKL ...
    switches: tuple[Place, ...] = ()  # functions that hide operators from the profiler
    loaders: tuple[Place, ...] = ()  # functions that find code at run time
    headers_loaders: tuple[Place, ...] = ()  # the same, of the toolkit's headers and not its own
    rewriters: tuple[Place, ...] = ()  # functions that change this process's code
    persisting: tuple[Place, ...] = ()  # words of keeping data in the device's cache
    flags: tuple[str, ...] = ()  # of the Candidate's own, those that loosen arithmetic
    narrow: tuple[str, ...] = ()  # instructions and types of fewer bits than float32
    not_read: str | None = None  # why the machine code was not read, where there is some


async def inspect(artefacts: Sequence[Artefact], requests: Sequence[BuildRequest]) -> NativeCode:
    """Raises OSError, and ValueError where an artefact is no object."""
    sources = [source for request in requests for source in request.sources]
    read: dict[str, set[str]] = {}
    for artefact in artefacts:
        for kind, function in (
            ("operators", symbols.operators_called),
            ("vendor", symbols.vendor_functions),
            ("switches", symbols.recording_switches),
            ("loaders", symbols.code_loaders),
            ("rewriters", symbols.code_rewriters),
        ):
            read.setdefault(kind, set()).update(function(artefact.path))
    if _of_headers(read.get("loaders", set()), sources):
        read["headers_loaders"] = read.pop("loaders")
    narrow, not_read = await _machine_code(artefacts)
    return NativeCode(
        extensions=len(artefacts),
        paths=tuple(sorted({path for item in artefacts for path in _loaded(item)})),
        **{
            kind: tuple(_placed(name, sources) for name in sorted(names))
            for kind, names in read.items()
        },
        persisting=tuple(
            _placed(word, sources)
            for word in sorted({m for s in sources for m in _PERSISTING.findall(_code(s.text))})
        ),
        flags=tuple(sorted({*_flags(requests), *_pragmas(sources)})),
        narrow=tuple(sorted({*narrow, *_narrow_types(sources)})),
        not_read=not_read,
    )


def kernels_of(requests: Sequence[BuildRequest]) -> frozenset[str]:
    """The names of the device kernels that the sources define or declare."""
    texts = [source.text for request in requests for source in request.sources]
    return frozenset(name for text in texts for name in _KERNEL.findall(_ATTRIBUTE.sub(" ", text)))


def _loaded(artefact: Artefact) -> Iterator[str]:
    yield artefact.path
    if artefact.trampoline is not None:
        yield artefact.trampoline
    if artefact.shim is not None:
        yield artefact.shim


async def _machine_code(artefacts: Sequence[Artefact]) -> tuple[tuple[str, ...], str | None]:
    with_code = [item.path for item in artefacts if symbols.has_device_code(item.path)]
    if not with_code:
        return (), None
    program = opcodes.disassembler()
    if program is None:
        return (), "cuobjdump is not installed"
    found: set[str] = set()
    try:
        for path in with_code:
            found.update(await opcodes.narrow_arithmetic(path, program))
    except tools.ToolError as error:
        return (), str(error)
    return tuple(sorted(found)), None


def _flags(requests: Sequence[BuildRequest]) -> Iterator[str]:
    for request in requests:
        words = [*request.extra_cflags, *request.extra_cuda_cflags]
        for word in (part for item in words for part in re.split(r"[\s,]+", item)):
            if _FAST_MATH.match(word):
                yield word


def _pragmas(sources: Sequence[SourceText]) -> Iterator[str]:
    for source in sources:
        for match in _PRAGMA.finditer(source.text):
            yield " ".join(match[0].split())


def _narrow_types(sources: Sequence[SourceText]) -> Iterator[str]:
    for source in sources:
        for match in _NARROW_TYPE.finditer(_code(source.text)):
            yield match[0]


def _of_headers(loaders: set[str], sources: Sequence[SourceText]) -> bool:
    """Whether headers of the toolkit alone can have brought these functions: no source names one,
    nor can put a name together."""
    text = "\n".join(_code(source.text) for source in sources)
    named = "##" in text or any(name in text for name in loaders)
    return bool(loaders) and not named and _BRINGS_LOADERS.search(text) is not None


def _code(text: str) -> str:
    """The text without its comments."""
    return _COMMENT_OR_STRING.sub(lambda m: " " if m[0].startswith("/") else m[0], text)


def _placed(name: str, sources: Sequence[SourceText]) -> Place:
    """`name` with the line where a source names it first: an operator by its own name, a library's
    function by its name without the version that a header appends."""
    word = name.removeprefix("aten::").split(".")[0]
    word = re.sub(r"_v\d+$", "", word)
    pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])")
    for source in sources:
        match = pattern.search(source.text)
        if match is not None and source.line is not None:
            return Place(name, source.line + source.text.count("\n", 0, match.start()))
    return Place(name)
