"""What a Candidate asked to be compiled, as the collect child recorded it."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SourceText:
    """One source string. `line` and `column` (1-based) are where its first character stands in
    the Candidate's file, None where the string was computed. `escaped` tells that the literal
    holds escapes or implicit joins, so that columns after the first line are not exact."""

    language: Literal["cpp", "cuda"]
    text: str
    line: int | None = None
    column: int | None = None
    escaped: bool = False


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The arguments of one `load_inline`, `load` or `load_native` call.

    `launches` is set for the native form (docs/native-form.md): its functions as JSON text, which
    `musacoder_runtime.native_form` describes.
    """

    name: str
    sources: tuple[SourceText, ...]
    functions: tuple[tuple[str, str], ...] = ()  # (name, docstring); empty: the source binds itself
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    with_cuda: bool | None = None
    is_python_module: bool = True
    launches: str | None = None

    @property
    def key(self) -> str:
        """Content key of the request without positions: what the serving loader computes again."""
        body = [
            self.name,
            [[s.language, s.text] for s in self.sources],
            [list(f) for f in self.functions],
            list(self.extra_cflags),
            list(self.extra_cuda_cflags),
            list(self.extra_ldflags),
            list(self.extra_include_paths),
            self.with_cuda,
            self.is_python_module,
            self.launches,
        ]
        text = json.dumps(body, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def words(flags: Sequence[str]) -> list[str]:
    """Flags as the shell of a stock build sees them: one string may hold several, or none."""
    split: list[str] = []
    for flag in flags:
        try:
            split += shlex.split(flag)
        except ValueError:  # a quotation mark without its other
            split += flag.split()
    return split


@dataclass(frozen=True, slots=True)
class Artefact:
    """A compiled extension that the candidate child can load."""

    request_key: str
    path: str  # the shared object; native form: the kernels as the device loads them
    lane: Literal["fast", "stock", "native"]
    module_name: str
    trampoline: str | None = None  # not in the stock lane: the module that loads `path`
    shim: str | None = None
    launches: str | None = None  # native form: what the shim reads beside the kernels at `path`
