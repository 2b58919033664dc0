"""Telling a wrong source from a facade that lacks something, without compiling against PyTorch.

An error is independent of the headers where the same compiler must report it against the real ones
too. That is so for a name that no real header mentions which the source can reach, and for a syntax
error in a source whose macros mean the same in both worlds. The words and macros of the real
headers are collected once per preparation: by the preprocessor where every source has them, as text
where a source may include them or not, and where they are the device vendor's. Text hides names
that a macro pastes together: a vendor's name that may be such a one is never called unknown.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from filelock import AsyncFileLock, Timeout

from musacoder_verifier import tools
from musacoder_verifier.diagnostics import Message
from musacoder_verifier.lanes.operators import IDENTIFIER, identifiers
from musacoder_verifier.lanes.prepare import Prepared, abi_flag, facade_includes
from musacoder_verifier.toolchain import Compiler
from musacoder_verifier.worker import WorkerInfo

_DEFINE = re.compile(r"^#define (\w+)", re.M)
_NO_CODE = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|//[^\n]*|/\*.*?\*/',
    re.S,
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)", re.M)
_QUOTED = r"[`‘']([A-Za-z_]\w*)['’]"
# Messages about a name that was not found, in the words of gcc, of clang and of nvcc's front end.
_UNKNOWN_NAME = re.compile(
    rf"^{_QUOTED} (?:was not declared in this scope|has not been declared|does not name a type)"
    rf"|^use of undeclared identifier {_QUOTED}|^unknown type name {_QUOTED}"
    r'|^identifier "([A-Za-z_]\w*)" is undefined'
)
# The same of a name that is looked for in a namespace of PyTorch's.
_TORCH = r"(?:::)?(?:at|c10|torch|caffe2)(?:::\w+)*"
_NO_MEMBER = re.compile(
    rf'^namespace "{_TORCH}" has no member "([A-Za-z_]\w*)"'
    rf"|^{_QUOTED} is not a member of [`‘']{_TORCH}['’]"
    rf"|^no member named {_QUOTED} in namespace '{_TORCH}'"
)
# Names that the vendor's headers declare, which those of PyTorch's CUDA part bring along.
_VENDOR_NAME = re.compile(r"(?:cu|CU|cuda|CUDA)(?:[A-Z_]|blas|sparse|solver|rand|fft|dnn)|nv|NV")
# Of a name, what tells whose it is: "CUBLAS" of CUBLAS_OP_N, "cudaMem" of cudaMemcpy.
_FAMILY = re.compile(r"(?i:cublas|cusparse|cusolver|curand|cufft|cudnn|cuda|nv[a-z]+|cu)")
# Headers of PyTorch's CUDA part: they are read as text, since a toolkit may lack what they include.
_CUDA_PART = ("c10/cuda", "ATen/cuda")
_SYNTAX = re.compile(
    r"^expected |^stray [`‘'\\]|^missing terminating |^unterminated |^unmatched |^extraneous "
    r"|^invalid suffix |^unbalanced |^a function-definition is not allowed here"
)
# A macro that pastes seldom makes a name of more pieces.
_PIECES = 3
# Headers of PyTorch that the real translation unit of every extension holds already.
_ALWAYS = ("torch/extension.h", "torch/all.h", "torch/torch.h", "torch/types.h", "ATen/ATen.h")
_STORED = ("words", "macros", "facade_macros", "vendor_words")
# Changes whenever what is stored does.
_STORE = "known_words_2.json"


@dataclass(frozen=True, slots=True)
class Header:
    """Of a header that no source has unless it includes it: the words that are its own, and the
    headers of PyTorch that it includes in turn."""

    words: frozenset[str]
    includes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of the real headers; macros of the real ones and of the facade; headers of PyTorch's
    CUDA part, and those that they include, by name; words of the vendor's headers."""

    words: frozenset[str]
    macros: frozenset[str]
    facade_macros: frozenset[str]
    headers: Mapping[str, Header] = field(default_factory=dict)
    vendor_words: frozenset[str] = frozenset()

    def reached(self, texts: Sequence[str]) -> frozenset[str]:
        """Words of all headers of the CUDA part that the sources include, and of theirs."""
        waiting = [name for text in texts for name in _INCLUDE.findall(text)]
        seen: set[str] = set()
        words: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self.headers:
                continue
            seen.add(name)
            words |= self.headers[name].words
            waiting += self.headers[name].includes
        return frozenset(words)


async def read(
    prepared: Prepared,
    info: WorkerInfo,
    compiler: Compiler,
    flags: Sequence[str],
    timeout: float,
    vendor_folders: Sequence[str] = (),
) -> Vocabulary:
    """The vocabulary of a preparation, collected on the first use; `vendor_folders` hold the device
    vendor's headers. Raises OSError, ToolError."""
    stored = prepared.folder / _STORE
    if not await asyncio.to_thread(stored.is_file):
        try:
            # Many Candidates compile at once; the first one that is at a loss collects for all.
            async with AsyncFileLock(stored.with_suffix(".lock"), timeout=timeout):
                if not await asyncio.to_thread(stored.is_file):
                    await _collect(prepared, info, compiler, flags, timeout, stored, vendor_folders)
        except Timeout as error:
            raise tools.ToolError("the words of the real headers are still being read") from error
    return await asyncio.to_thread(_load, stored)


def _load(path: Path) -> Vocabulary:
    stored = json.loads(path.read_text("utf-8"))
    headers = {
        name: Header(frozenset(words), tuple(includes))
        for name, (words, includes) in stored["headers"].items()
    }
    return Vocabulary(**{name: frozenset(stored[name]) for name in _STORED}, headers=headers)


async def _collect(
    prepared: Prepared,
    info: WorkerInfo,
    compiler: Compiler,
    flags: Sequence[str],
    timeout: float,
    stored: Path,
    vendor_folders: Sequence[str],
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
    text = await asyncio.to_thread(
        _collected, texts[0], texts[1], prepared.torch_include, vendor_folders
    )
    temporary = stored.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(stored)


def _collected(real: str, facade: str, torch_include: Path, vendor_folders: Sequence[str]) -> str:
    words = set(IDENTIFIER.findall(real))
    macros = set(_DEFINE.findall(real))
    headers: dict[str, tuple[list[str], list[str]]] = {}
    waiting = [
        str(path.relative_to(torch_include))
        for folder in _CUDA_PART
        for path in (torch_include / folder).rglob("*.*h")
    ]
    while waiting:
        name = waiting.pop()
        if name in headers:
            continue
        text = (torch_include / name).read_text("utf-8", "replace")
        if name.startswith(tuple(f"{folder}/" for folder in _CUDA_PART)):
            macros |= set(_DEFINE.findall(text))
        beside = Path(name).parent
        includes = [
            str(path)
            for found in _INCLUDE.findall(text)
            for path in (Path(found), beside / found)
            if (torch_include / path).is_file()
        ]
        headers[name] = (sorted(set(IDENTIFIER.findall(text)) - words), includes)
        waiting += includes
    return json.dumps(
        {
            "words": sorted(words),
            "macros": sorted(macros),
            "facade_macros": sorted(set(_DEFINE.findall(facade))),
            "headers": headers,
            "vendor_words": sorted(_vendor_words(vendor_folders)),
        }
    )


def _vendor_words(folders: Sequence[str]) -> set[str]:
    words: set[str] = set()
    roots = [Path(folder) for folder in folders]
    for root in roots:
        if any(other in root.parents for other in roots):
            continue  # read along with the other
        for path in root.rglob("*"):
            if path.is_file():
                words |= set(IDENTIFIER.findall(path.read_text("utf-8", "replace")))
    return words


def independent_of_headers(
    messages: Sequence[Message], texts: Sequence[str], vocabulary: Vocabulary
) -> tuple[Message, ...]:
    """The messages, where an error stands in the source itself and must come with the real headers
    too; none in doubt.

    The first error decides, for what follows it is often only its consequence. After a member that
    the facade lacks, an unknown name decides as well if the source only ever calls it; then it is
    the only message that is known to be right.
    """
    errors = [message for message in messages if message.severity == "error"]
    if not errors or _own_torch_headers(texts):
        return ()
    for place, error in enumerate(errors):
        if error.source is None:
            return ()
        told = tuple(messages) if place == 0 else (error,)
        missing = _name(_NO_MEMBER, error.text)
        unknown = _name(_UNKNOWN_NAME, error.text)
        if missing is not None:
            if _only(missing, texts, r"::$") and _nowhere(missing, texts, vocabulary):
                return told
        elif unknown is not None:
            called = place == 0 or _only(unknown, texts, r"[;{}]$", r"\s*\(")
            if called and _unknown(unknown, texts, vocabulary):
                return told
            if place == 0:
                return ()
        else:
            wrong = place == 0 and _wrong_syntax(error.text, texts, vocabulary)
            return told if wrong else ()
    return ()


def _name(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.match(text)
    return next(group for group in match.groups() if group) if match is not None else None


def _unknown(name: str, texts: Sequence[str], vocabulary: Vocabulary) -> bool:
    """Whether the sources name it, and no real header that they can reach does."""
    if name not in identifiers("\n".join(texts)):
        return False  # a macro made it, perhaps one of the facade's
    if name in vocabulary.words or name in vocabulary.reached(texts):
        return False
    return _VENDOR_NAME.match(name) is None or _not_the_vendors(name, texts, vocabulary)


def _nowhere(name: str, texts: Sequence[str], vocabulary: Vocabulary) -> bool:
    reached = vocabulary.reached(texts)
    return not (name in vocabulary.words or name in reached or _pasted(name, reached))


def _not_the_vendors(name: str, texts: Sequence[str], vocabulary: Vocabulary) -> bool:
    """Whether the vendor's headers are here and none mentions this name, which is like theirs."""
    words = vocabulary.vendor_words
    family = _FAMILY.match(name)
    if family is None or not any(word.startswith(family[0]) for word in words):
        return False  # the headers of this library may lie elsewhere
    used = identifiers("\n".join(texts)) - {name}
    return name not in words and not _pasted(name, words | used)


def _pasted(name: str, words: AbstractSet[str], pieces: int = _PIECES) -> bool:
    """Whether the name may be made of words, or of words and numbers."""
    for end in range(1, len(name)):
        if name[:end] not in words and not name[:end].isdigit():
            continue
        rest = name[end:]
        if rest in words or rest.isdigit() or (pieces > 2 and _pasted(rest, words, pieces - 1)):
            return True
    return False


def _only(name: str, texts: Sequence[str], before: str, after: str = "") -> bool:
    """Whether the sources use the name, and only after what `before` and before what `after`
    matches, so that nothing in them declares it."""
    found = False
    for text in texts:
        plain = _NO_CODE.sub(" ", text)
        for match in re.finditer(rf"\b{name}\b", plain):
            found = True
            ahead = plain[: match.start()].rstrip()
            if re.search(before, ahead[-2:]) is None:
                return False
            if re.match(after, plain[match.end() :]) is None:
                return False
    return found


def _wrong_syntax(message: str, texts: Sequence[str], vocabulary: Vocabulary) -> bool:
    if _SYNTAX.match(message) is None:
        return False
    used = identifiers("\n".join(texts))
    return not (used & vocabulary.macros) - vocabulary.facade_macros


def _own_torch_headers(texts: Sequence[str]) -> bool:
    """Whether a source includes headers of PyTorch beyond those that the vocabulary covers."""
    return any(
        header.split("/")[0] in ("torch", "ATen", "c10", "caffe2", "pybind11")
        and header not in _ALWAYS
        and not header.startswith(("ATen/ops/", *(f"{name}/" for name in _CUDA_PART)))
        for text in texts
        for header in _INCLUDE.findall(text)
    )
