"""Telling a wrong source from a facade that lacks something, without compiling against PyTorch.

An error is independent of the headers where the same compiler must report it against the real ones
too. That is so for a name that no real header mentions at all, and for a syntax error in a source
whose macros mean the same in both worlds. The words and macros of the real headers are collected
once per preparation, from the preprocessor.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import AsyncFileLock, Timeout

from musacoder_verifier import tools
from musacoder_verifier.diagnostics import Message
from musacoder_verifier.lanes.operators import IDENTIFIER, identifiers
from musacoder_verifier.lanes.prepare import Prepared, abi_flag, facade_includes
from musacoder_verifier.toolchain import Compiler
from musacoder_verifier.worker import WorkerInfo

_DEFINE = re.compile(r"^#define (\w+)", re.M)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)", re.M)
_QUOTED = r"[`‘']([A-Za-z_]\w*)['’]"
# Messages about a name that was not found, in the words of gcc, of clang and of nvcc's front end.
_UNKNOWN_NAME = re.compile(
    rf"^{_QUOTED} (?:was not declared in this scope|has not been declared|does not name a type)"
    rf"|^use of undeclared identifier {_QUOTED}|^unknown type name {_QUOTED}"
    r'|^identifier "([A-Za-z_]\w*)" is undefined'
)
# Names that the vendor's headers declare, which those of PyTorch's CUDA part bring along.
_VENDOR_NAME = re.compile(r"(?:cu|CU|cuda|CUDA)(?:[A-Z_]|blas|sparse|solver|rand|fft|dnn)|nv|NV")
# Headers of PyTorch's CUDA part: they are read as text, since a toolkit may lack what they include.
_CUDA_PART = ("c10/cuda", "ATen/cuda")
_SYNTAX = re.compile(
    r"^expected |^stray [`‘'\\]|^missing terminating |^unterminated |^unmatched |^extraneous "
    r"|^invalid suffix |^unbalanced |^a function-definition is not allowed here"
)
# Headers of PyTorch that the real translation unit of every extension holds already.
_ALWAYS = ("torch/extension.h", "torch/all.h", "torch/torch.h", "torch/types.h", "ATen/ATen.h")
_STORED = ("words", "macros", "facade_macros", "cuda_words")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of the real headers; macros of the real ones and of the facade; words of PyTorch's CUDA
    part, whose headers no other header includes."""

    words: frozenset[str]
    macros: frozenset[str]
    facade_macros: frozenset[str]
    cuda_words: frozenset[str] = frozenset()


async def read(
    prepared: Prepared,
    info: WorkerInfo,
    compiler: Compiler,
    flags: Sequence[str],
    timeout: float,
) -> Vocabulary:
    """The vocabulary of a preparation, collected on the first use. Raises OSError, ToolError."""
    stored = prepared.folder / "known_words.json"
    if not await asyncio.to_thread(stored.is_file):
        try:
            # Many Candidates compile at once; the first one that is at a loss collects for all.
            async with AsyncFileLock(stored.with_suffix(".lock"), timeout=timeout):
                if not await asyncio.to_thread(stored.is_file):
                    await _collect(prepared, info, compiler, flags, timeout, stored)
        except Timeout as error:
            raise tools.ToolError("the words of the real headers are still being read") from error
    return await asyncio.to_thread(_load, stored)


def _load(path: Path) -> Vocabulary:
    stored = json.loads(path.read_text("utf-8"))
    return Vocabulary(**{name: frozenset(stored[name]) for name in _STORED})


async def _collect(
    prepared: Prepared,
    info: WorkerInfo,
    compiler: Compiler,
    flags: Sequence[str],
    timeout: float,
    stored: Path,
) -> None:
    real = [f"-isystem{path}" for path in info.torch_include_dirs]
    python = [f"-isystem{path}" for path in info.python_include_dirs]
    texts: list[str] = []
    for includes in ([*real, *python], facade_includes(prepared.folder)):
        target = stored.with_suffix(f".{len(texts)}.ii")
        try:
            result = await tools.run(
                [compiler.path, *flags, abi_flag(info), "-E", "-dD", "-P", *includes,
                 "-DTORCH_EXTENSION_NAME=x", "-x", "c++",
                 str(prepared.prefix), "-o", str(target)],
                cwd=prepared.folder,
                timeout=timeout,
            )  # fmt: skip
            if result.returncode != 0:
                raise tools.ToolError("the real headers cannot be read by the compiler")
            texts.append(await asyncio.to_thread(target.read_text, "utf-8", "replace"))
        finally:
            target.unlink(missing_ok=True)
    cuda = await asyncio.to_thread(_cuda_part, prepared.torch_include)
    text = await asyncio.to_thread(_collected, texts[0], texts[1], cuda)
    temporary = stored.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(stored)


def _cuda_part(torch_include: Path) -> str:
    files = (path for name in _CUDA_PART for path in sorted((torch_include / name).rglob("*.*h")))
    return "\n".join(path.read_text("utf-8", "replace") for path in files)


def _collected(real: str, facade: str, cuda: str) -> str:
    return json.dumps(
        {
            "words": sorted(set(IDENTIFIER.findall(real))),
            "macros": sorted(set(_DEFINE.findall(real)) | set(_DEFINE.findall(cuda))),
            "facade_macros": sorted(set(_DEFINE.findall(facade))),
            "cuda_words": sorted(set(IDENTIFIER.findall(cuda))),
        }
    )


def independent_of_headers(
    messages: Sequence[Message], texts: Sequence[str], vocabulary: Vocabulary
) -> bool:
    """Whether the first error stands in the source itself and must come with the real headers too.

    The first error decides: what follows it is often only its consequence.
    """
    first = next((message for message in messages if message.severity == "error"), None)
    if first is None or first.source is None or _own_torch_headers(texts):
        return False
    unknown = _UNKNOWN_NAME.match(first.text)
    if unknown is not None:
        name = next(group for group in unknown.groups() if group)
        if name in vocabulary.words or _VENDOR_NAME.match(name) is not None:
            return False
        return name not in vocabulary.cuda_words or not _includes(texts, _CUDA_PART)
    if _SYNTAX.match(first.text) is None:
        return False
    used = identifiers("\n".join(texts))
    return not (used & vocabulary.macros) - vocabulary.facade_macros


def _includes(texts: Sequence[str], folders: Sequence[str]) -> bool:
    """Whether a source includes a header of one of these folders of PyTorch's."""
    prefixes = tuple(f"{folder}/" for folder in folders)
    return any(header.startswith(prefixes) for text in texts for header in _INCLUDE.findall(text))


def _own_torch_headers(texts: Sequence[str]) -> bool:
    """Whether a source includes headers of PyTorch beyond those that the vocabulary covers."""
    return any(
        header.split("/")[0] in ("torch", "ATen", "c10", "caffe2", "pybind11")
        and header not in _ALWAYS
        and not header.startswith(("ATen/ops/", *(f"{name}/" for name in _CUDA_PART)))
        for text in texts
        for header in _INCLUDE.findall(text)
    )
