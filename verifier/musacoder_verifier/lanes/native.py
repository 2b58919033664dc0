"""The native form: device sources through NVRTC to a device image, with launches as a table.

No host code is compiled: `native/shim_native.cpp` does from the table what a host source would do.
The table names the size of every parameter of a kernel, which is read from the image, so that
what the launches pass is checked before anything runs. docs/native-form.md has the whole picture.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musacoder_verifier import diagnostics, tools
from musacoder_verifier.build_request import BuildRequest, words
from musacoder_verifier.diagnostics import Message, virtual_name
from musacoder_verifier.lanes import symbols
from musacoder_verifier.lanes.device import DeviceCompiler
from musacoder_verifier.lanes.fast import LaneResult

_PROGRAM = Path(__file__).with_name("nvrtc_program.py")
_OPTION_REFUSED, _FAILED = 2, 3
# c10::ScalarType
_DTYPES = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6,
    "float64": 7, "bool": 11, "bfloat16": 15,
}  # fmt: skip
# Attribute EIATTR_KPARAM_INFO in a section `.nv.info.<kernel>`, and the one format with a length.
_KPARAM_INFO, _SIZED = 0x17, 0x04


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """NVRTC as a library file. `identity` changes whenever the file does."""

    library: str
    identity: str


def find(device: DeviceCompiler) -> Nvrtc | None:
    """The newest NVRTC of the toolkit, else of the packages beside the user's torch."""
    for folder in map(Path, device.library_dirs):
        for path in sorted(folder.glob("libnvrtc.so.*"), key=_release, reverse=True):
            real = path.resolve()
            status = real.stat()
            return Nvrtc(str(path), f"{real} {status.st_mtime_ns} {status.st_size}")
    return None


def _release(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def missing() -> str:
    """One sentence for a user whose Candidate in the native form cannot be compiled."""
    return (
        "NVRTC (libnvrtc.so) was not found, neither in the CUDA toolkit nor beside torch; "
        "install it: pip install nvidia-cuda-nvrtc"
    )


def options(request: BuildRequest, device: DeviceCompiler) -> list[str]:
    """What NVRTC is given: the architecture of the Backend's flags, so that it makes code of the
    device and not of a virtual one, and the Candidate's own options last."""
    found = re.search(r"\bcode=(sm_\w+)", " ".join(device.flags))
    architecture = [f"--gpu-architecture={found[1]}"] if found is not None else []
    includes = [f"--include-path={folder}" for folder in device.toolkit.include_dirs]
    common = ["--std=c++17", "--ptxas-options=-v"]
    return [*architecture, *common, *includes, *words(request.extra_cuda_cflags)]


async def compile_request(
    request: BuildRequest, nvrtc: Nvrtc, device: DeviceCompiler, folder: Path, timeout: float
) -> LaneResult:
    """Compiles one request in `folder`; its image is the result's library. Raises OSError and
    tools.ToolError."""
    source, target = folder / virtual_name(0), folder / f"{request.name}.cubin"
    source.write_bytes(request.sources[0].text.encode("utf-8", "surrogatepass"))
    command = [
        sys.executable, "-I", "-S", str(_PROGRAM), nvrtc.library, str(source), source.name,
        str(target), *options(request, device),
    ]  # fmt: skip
    result = await tools.run(command, cwd=folder, timeout=timeout)
    refused = result.returncode == _OPTION_REFUSED and not request.extra_cuda_cflags
    if result.returncode == _FAILED or refused:
        said = next((line for line in result.output.splitlines() if line.strip()), "no message")
        raise tools.ToolError(f"NVRTC ({nvrtc.library}) failed: {said.strip()}")
    messages = await asyncio.to_thread(diagnostics.parse, result.output)
    made = target if result.returncode == 0 else None
    if made is not None:
        problems = tuple(_mismatches(request, parameter_sizes(made)))
        if problems:
            return LaneResult(None, (*messages, *problems), result.output, result.seconds)
    return LaneResult(made, messages, result.output, result.seconds, result.timed_out)


def parameter_sizes(image: str | Path) -> dict[str, tuple[int, ...]]:
    """Kernel -> the size in bytes of each of its parameters, in order. Raises OSError, and
    ValueError where the file is no such image."""
    prefix = ".nv.info."
    return {
        name.removeprefix(prefix): tuple(size for _, size in sorted(_parameters(data)))
        for name, data in symbols.sections(image, prefix)
    }


def _parameters(data: bytes) -> Iterator[tuple[int, int]]:
    """(position, size) of each parameter that a section of kernel attributes tells of."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute == _KPARAM_INFO and size >= 12:
            # An index, then position and offset, then flags whose upper 14 bits are the size.
            _, position, _, flags = struct.unpack_from("<IHHI", data, at)
            yield position, flags >> 18
        at += size


def _mismatches(request: BuildRequest, kernels: Mapping[str, tuple[int, ...]]) -> Iterator[Message]:
    for function in _functions(request).values():
        for launch in function["launches"]:
            text = _mismatch(function, launch, kernels)
            if text is not None:
                line = _line_of(launch["kernel"], request.sources[0].text)
                yield Message(virtual_name(0), line, 1, "error", text, 0)


def _mismatch(
    function: Mapping[str, Any], launch: Mapping[str, Any], kernels: Mapping[str, tuple[int, ...]]
) -> str | None:
    kernel, passed = launch["kernel"], launch["args"]
    if kernel not in kernels:
        return f'the source defines no kernel extern "C" __global__ void {kernel}(...)'
    sizes = kernels[kernel]
    if len(sizes) != len(passed):
        return f"{kernel} takes {len(sizes)} parameters, but its launch passes {len(passed)}"
    names = [item["name"] for item in (*function["args"], *function["made"])]
    for position, (item, size) in enumerate(zip(passed, sizes, strict=True), start=1):
        if "tensor" in item and size != 8:
            what = f"the address of {names[item['tensor']]}"
        elif "float" in item and size not in (4, 8):
            what = f"the floating-point number {names[item['float']]}"
        elif "integer" in item and size not in (1, 2, 4, 8):
            what = "an integer"
        else:
            continue
        return f"parameter {position} of {kernel} has {size} bytes, but its launch passes {what}"
    return None


def _line_of(word: str, text: str) -> int:
    found = re.search(rf"\b{re.escape(word)}\s*\(", text) or re.search(rf"\b{word}\b", text)
    return text.count("\n", 0, found.start()) + 1 if found is not None else 1


def _functions(request: BuildRequest) -> dict[str, Any]:
    functions: dict[str, Any] = json.loads(request.launches or "{}")
    return functions


def table(request: BuildRequest, image: str | Path) -> str:
    """The functions of a request as `mc_open_native` reads them: words, with counts before lists.
    Raises OSError and ValueError as `parameter_sizes` does."""
    sizes = parameter_sizes(image)
    functions = _functions(request)
    parts = [str(len(functions))]
    for name, function in functions.items():
        parts += [name, str(function["variables"]), *_listed(function["args"], _argument)]
        parts += [*_listed(function["made"], _made), str(function["outputs"])]
        parts.append(str(len(function["launches"])))
        for launch in function["launches"]:
            parts.append(launch["kernel"])
            for size in (*launch["grid"], *launch["block"], launch["shared"]):
                parts += _expression(size)
            parts.append(str(len(launch["args"])))
            for item, size in zip(launch["args"], sizes[launch["kernel"]], strict=True):
                parts += _parameter(item, size)
    return " ".join(parts)


def _listed(items: Sequence[Any], printed: Any) -> list[str]:
    return [str(len(items)), *(word for item in items for word in printed(item))]


def _argument(item: Mapping[str, Any]) -> list[str]:
    if item["kind"] == "tensor":
        # A size that is a plain number or variable is an expression of one word.
        dims = [[str(size)] for size in item.get("dims", ())]
        return ["t", *_tensor(item, dims, first=item.get("like"))]
    return [{"int": "i", "bool": "b", "float": "d"}[item["kind"]], item["name"],
            str(item.get("variable", -1))]  # fmt: skip


def _made(item: Mapping[str, Any]) -> list[str]:
    return _tensor(item, item.get("dims", ()), first=item.get("like"))


def _tensor(item: Mapping[str, Any], dims: Sequence[Sequence[str]], first: int | None) -> list[str]:
    head = [item["name"], str(_DTYPES[item["dtype"]])]
    return [*head, str(first)] if first is not None else [*head, "-1", *_listed(dims, _expression)]


def _parameter(item: Mapping[str, Any], size: int) -> list[str]:
    if "tensor" in item:
        return ["t", str(size), str(item["tensor"])]
    if "float" in item:
        return ["d", str(size), str(item["float"])]
    return ["i", str(size), *_expression(item["integer"])]


def _expression(steps: Sequence[str]) -> list[str]:
    return [str(len(steps)), *steps]
