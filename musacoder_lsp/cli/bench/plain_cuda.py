"""The device code of a CUDA source alone: what plain nvcc compiles without one PyTorch header.

Kept: includes of the toolkit, preprocessor definitions, constants, types and device functions
without a PyTorch name in them, and the kernels. Dropped: every host function, and the headers of
libraries that only host functions call. A template is instantiated once (float, 32, true), because
nothing else would be left of it to compile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PYTORCH = re.compile(
    r"\b(?:torch|at|c10|pybind11|py)::|\bPYBIND11_|\bTORCH_|\bAT_|\bC10_|PackedTensorAccessor"
)
_INCLUDE = re.compile(r'#\s*include\s*[<"]([^>"]+)[>"]')
_FOREIGN = (
    "torch/",
    "ATen/",
    "c10/",
    "pybind11/",
    "Python.h",
    "THC/",
    "cublas",
    "cudnn",
    "cusolver",
    "cusparse",
)
_DEVICE = re.compile(r"\b__(?:global|device|constant)__\b")
_TYPE = re.compile(r"^(?:template\s*<[^{;]*>\s*)?(?:struct|enum|union|using|typedef|constexpr|"
                   r"static\s+constexpr|const|static\s+const)\b")  # fmt: skip
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_TEMPLATE = re.compile(r"^template\s*<(?P<parameters>[^{;]*?)>\s*(?=[^<>]*__global__)", re.DOTALL)
_KERNEL = re.compile(r"__global__.*?\b(\w+)\s*\(", re.DOTALL)
# What stands between `__global__` and the name.
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Stripped:
    """`text` compiles by itself, if anything does; `kernels` are those that it keeps, `lost` those
    that need PyTorch."""

    text: str
    kernels: tuple[str, ...]
    lost: tuple[str, ...]


def strip(source: str) -> Stripped:
    """The device code of one `.cu` text."""
    kept: list[str] = []
    kernels: list[str] = []
    lost: list[str] = []
    uses: list[str] = []
    for piece in pieces(_COMMENT.sub(" ", source)):
        if piece.startswith("#"):
            include = _INCLUDE.match(piece)
            if include is None or not include[1].startswith(_FOREIGN):
                kept.append(piece)
            continue
        kernel = _KERNEL.search(_BOUNDS.sub("", piece)) if "__global__" in piece else None
        if _PYTORCH.search(_STRING.sub('""', piece)):
            if kernel is not None:
                lost.append(kernel[1])
        elif _DEVICE.search(piece) or _TYPE.match(piece):
            kept.append(piece)
            if kernel is not None and "{" in piece:
                kernels.append(kernel[1])
                uses += _instance(piece, kernel[1], len(uses))
    return Stripped("\n".join([*kept, *uses, ""]), tuple(kernels), tuple(lost))


def _instance(piece: str, name: str, index: int) -> list[str]:
    template = _TEMPLATE.match(piece)
    if template is None:
        return []
    values = []
    for parameter in template["parameters"].split(","):
        kind = parameter.split("=")[0].split()
        default = {"typename": "float", "class": "float", "bool": "true"}
        values.append(default.get(kind[0], "32") if kind else "float")
    return [f"extern void* const plain_use_{index} = (void*)&{name}<{', '.join(values)}>;"]


def pieces(text: str) -> list[str]:
    """Declarations and definitions at file level, and preprocessor lines, in order. Namespaces and
    `extern "C"` blocks are opened."""
    found: list[str] = []
    start = place = depth = 0
    while place < len(text):
        letter = text[place]
        if letter == "#" and depth == 0 and not text[start:place].strip():
            end = place
            while True:  # a line that goes on after a backslash
                stop = text.find("\n", end)
                stop = len(text) if stop < 0 else stop
                if not text[:stop].endswith("\\"):
                    break
                end = stop + 1
            found.append(text[place:stop].strip())
            start = place = stop
            continue
        if letter == '"':
            string = _STRING.match(text, place)
            place = string.end() if string is not None else place + 1
            continue
        if letter == "{":
            head = text[start:place].strip()
            if depth == 0 and re.fullmatch(r'namespace(\s+\w+)?|extern\s+"C"', head):
                start = place + 1  # opened: what is inside stands at file level
            else:
                depth += 1
        elif letter == "}":
            if depth == 0:
                start = place + 1  # the end of an opened block
            else:
                depth -= 1
                tail = text[place + 1 : place + 2]
                if depth == 0 and tail != ";" and not _open_ended(text[start:place]):
                    found.append(text[start : place + 1].strip())
                    start = place + 1
        elif letter == ";" and depth == 0:
            found.append(text[start : place + 1].strip())
            start = place + 1
        place += 1
    return [piece for piece in found if piece]


def _open_ended(text: str) -> bool:
    """A brace that does not end the declaration: `struct x {} y;` and initialisers."""
    head = text[: text.find("{")].strip()
    return head.endswith("=") or bool(re.match(r"(?:typedef\s+)?(?:struct|union|enum)\b", head))
