"""The fast lane: a Candidate's sources against the facade, linked with the shim library alone."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from musacoder_verifier import diagnostics, tools
from musacoder_verifier.build_request import BuildRequest, words
from musacoder_verifier.diagnostics import Message, virtual_name
from musacoder_verifier.lanes import device as device_unit
from musacoder_verifier.lanes import operators, precompiled, std_names
from musacoder_verifier.lanes.device import DeviceCompiler
from musacoder_verifier.lanes.prepare import SHIM, Prepared, facade_includes
from musacoder_verifier.toolchain import Compiler

# torch versions whose operators and casters the facade is tested against.
TESTED_TORCH = ("2.11", "2.13")
BINDINGS = "musacoder_bindings"
# Names that the real headers do not have: a source that uses one must not compile for it.
_OURS = re.compile(r"\b(?:mc_\w+|MC_[A-Z]\w*|musacoder(?:_\w+)?)\b")
_LOADED_BY_TORCH = re.compile(
    r"(?:cublas|cusparse|cusolver|cufft|curand|cudnn|nvrtc|cuda[A-Z]|__cuda)"
)


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What a lane made of one request: a shared object, or the messages that say why not."""

    library: Path | None
    messages: tuple[Message, ...]
    output: str
    seconds: float
    timed_out: bool = False


def unsuitable(request: BuildRequest, torch_version: str) -> str | None:
    """Why a request must take the stock lane, as a phrase; None where the fast lane may try."""
    release = ".".join(torch_version.split("+")[0].split(".")[:2])
    if release not in TESTED_TORCH:
        return f"torch {torch_version} is not among the versions that the fast lane is tested on"
    if not request.is_python_module:
        return "the extension is not a Python module"
    if not request.name.isidentifier():
        return f"the extension's name {request.name!r} is not an identifier"
    lacking = device_unit.unsuitable(request)
    if lacking is not None:
        return lacking
    for source in request.sources:
        ours = _OURS.search(source.text)
        if ours is not None:
            return f"the source names {ours[0]}"
    return None


def binding_source(request: BuildRequest) -> str:
    """The binding code that `load_inline` writes for `functions=[...]`."""
    if not request.functions:
        return ""
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    lines += [
        f'm.def("{name}", torch::wrap_pybind_function({name}), "{doc}");'
        for name, doc in request.functions
    ]
    return "\n".join([*lines, "}"]) + "\n"


def write_sources(request: BuildRequest, folder: Path, torch_include: Path) -> None:
    """Writes the translation unit, its generated operators, and the virtual files that the
    compiler quotes from."""
    binding = binding_source(request)
    host = [(index, s.text) for index, s in enumerate(request.sources) if s.language == "cpp"]
    texts = [text for _, text in host]
    names = operators.identifiers("\n".join([*texts, binding]))
    generated = folder / "musacoder_generated"
    generated.mkdir()
    (generated / "operators.h").write_text(
        operators.definitions(torch_include, names), encoding="utf-8"
    )
    stubs = folder / "ATen" / "ops"
    everything = "\n".join(source.text for source in request.sources)
    for name in set(re.findall(r"ATen/ops/(\w+)\.h\b", everything)):
        # What such a header declares is declared already, because its name was found.
        if (torch_include / "ATen" / "ops" / f"{name}.h").is_file():
            stubs.mkdir(parents=True, exist_ok=True)
            (stubs / f"{name}.h").write_text("#pragma once\n", encoding="utf-8")
    parts = [
        f"#define TORCH_EXTENSION_NAME {request.name}\n",
        *(f"#include <{name}>\n" for name in std_names.rare_headers(names)),
        "#include <musacoder_generated/operators.h>\n",
    ]
    for index, source in enumerate(request.sources):
        _write(folder / virtual_name(index), source.text)
    for index, text in host:
        parts.append(f'#line 1 "{virtual_name(index)}"\n{text}\n')
    if binding:
        _write(folder / BINDINGS, binding)
        parts.append(f'#line 1 "{BINDINGS}"\n{binding}')
    _write(folder / "main.cpp", "".join(parts))
    if len(host) < len(request.sources):
        device_unit.write_unit(request, folder, torch_include)


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


async def compile_request(
    request: BuildRequest,
    prepared: Prepared,
    compiler: Compiler,
    flags: Sequence[str],
    folder: Path,
    timeout: float,
    device: DeviceCompiler | None = None,
) -> LaneResult:
    """Compiles and links one request in `folder`, `device` where it has device sources or may use
    the device's headers. Raises OSError and tools.ToolError."""
    await asyncio.to_thread(write_sources, request, folder, prepared.torch_include)
    own_flags = words(request.extra_cflags)
    libraries = words(request.extra_ldflags)
    prefix = await precompiled.header(prepared, compiler, flags, own_flags, timeout)
    library = folder / f"{request.name}.so"
    host = [
        compiler.path, *flags, *compiler.message_flags, *own_flags,
        "-include", str(prefix), f"-I{folder}", *facade_includes(prepared.folder),
        *(f"-I{path}" for path in request.extra_include_paths),
        *(device.includes() if device is not None else []),
    ]  # fmt: skip
    link = [
        *(await asyncio.to_thread(lambda: compiler.linker_flags)),  # tries linkers, once
        *(device.libraries(libraries) if device is not None else libraries),
        str(prepared.facade), f"-L{prepared.folder}", f"-l:{SHIM}",
        *(device.link_flags() if device is not None else []), "-Wl,-z,defs",
    ]  # fmt: skip
    if device is None or not device_unit.device_sources(request):
        command = [*host, "-shared", "main.cpp", "-o", library.name, *link]
        return await _finished(await tools.run(command, cwd=folder, timeout=timeout), library)
    return await _with_device(request, prepared, flags, folder, timeout, device, (host, link))


async def _with_device(
    request: BuildRequest,
    prepared: Prepared,
    flags: Sequence[str],
    folder: Path,
    timeout: float,
    device: DeviceCompiler,
    commands: tuple[list[str], list[str]],
) -> LaneResult:
    """Host unit and device unit side by side, then the link."""
    host, link = commands
    library = folder / f"{request.name}.so"
    started = time.monotonic()
    units = await asyncio.gather(
        tools.run([*host, "-c", "main.cpp", "-o", "main.o"], cwd=folder, timeout=timeout),
        device_unit.compile_unit(device, request, prepared, flags, folder, timeout),
    )
    output = "".join(unit.output for unit in units)
    if any(unit.returncode != 0 for unit in units):
        stopped = any(unit.timed_out for unit in units)
        failed = tools.ToolResult(None if stopped else 1, output, time.monotonic() - started)
        return await _finished(failed, library)
    left = max(1.0, timeout - (time.monotonic() - started))
    command = [device.host.path, "-shared", "main.o", device_unit.OBJECT, "-o", library.name, *link]
    linked = await tools.run(command, cwd=folder, timeout=left)
    if linked.returncode == 1 and _only_loaded_by_torch(linked.output):
        # torch has these in the process already, and stock extensions count on that.
        command.remove("-Wl,-z,defs")
        linked = await tools.run(command, cwd=folder, timeout=left)
    done = tools.ToolResult(linked.returncode, output + linked.output, time.monotonic() - started)
    return await _finished(done, library)


def _only_loaded_by_torch(output: str) -> bool:
    """Whether what the linker lacks are functions of libraries that the user's torch brings."""
    lacking = re.findall(r"undefined (?:reference to|symbol:) [`'\"]?(\w+)", output)
    return bool(lacking) and all(map(_LOADED_BY_TORCH.match, lacking))


async def _finished(result: tools.ToolResult, library: Path) -> LaneResult:
    messages = await asyncio.to_thread(diagnostics.parse, result.output)
    made = library if result.returncode == 0 else None
    return LaneResult(made, messages, result.output, result.seconds, result.timed_out)
