"""Device sources in the fast lane: what their unit includes, and how it is compiled.

A device compiler reads a unit three times and knows no precompiled headers, so every header counts:
the facade brings few (`MC_DEVICE_UNIT`), and what a source names decides which others come with it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from musacoder_verifier import tools
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.build_request import BuildRequest, SourceText, words
from musacoder_verifier.diagnostics import virtual_name
from musacoder_verifier.lanes import nvcc_steps, operators, std_names
from musacoder_verifier.lanes.prepare import Prepared, facade_includes, runtime_library
from musacoder_verifier.toolchain import Compiler, Toolkit
from musacoder_verifier.worker import WorkerInfo

UNIT = "device.cu"
OBJECT = "device.o"
FOLDER = "device"  # of what is generated for the device unit alone
# What torch.utils.cpp_extension gives nvcc beside the architecture, in every version since 2.0.
_COMMON_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)
# `load_inline` puts these first in a device source; with them comes <cfloat>, as in no host source.
_IMPLICIT = ("torch/types.h", "cuda_runtime.h")
# The driver's header is large and rarely meant: its names begin so.
_DRIVER = re.compile(r"\b(?:cu[A-Z]|CU[a-z]|CU_|CUDA_(?:VERSION|SUCCESS|ERROR|ARRAY|MEM))")

_VENDOR_LIBRARY = re.compile(
    r"-l(?:cudart|cublas|cublasLt|cusparse|cusolver|cufft|curand|cudnn|nvrtc|cuda)"
)
# What of PyTorch the lean unit leaves out.
_LEFT_OUT = re.compile(
    r"\b(?:PYBIND11_\w+|pybind11|py|from_blob|parallel_for|parallel_reduce|(?:get|set)_num_threads|get_thread_num"
    r"|in_parallel_region|divup|ostream|wrap_pybind_function|TORCH_LIBRARY\w*)\b"
)
# Words that tell that the toolkit's own 16-bit types matter: where a template may be instantiated
# for one, their conversions decide which overloads are ambiguous.
_TOOLKIT_HALF = re.compile(
    r"half|bfloat|bf16|fp16|_AND\d?\b|REDUCED_FLOATING|\b__h[a-z]\w*|\bh(?:exp|log|sqrt|sin|cos|rcp|rint)\w*"
    r"|\b__(?:low|high)s?2\w+",
    re.I,
)


@dataclass(frozen=True, slots=True)
class DeviceCompiler:
    """nvcc with its host compiler, and the runtime library that an extension shares with torch."""

    toolkit: Toolkit
    host: Compiler
    flags: tuple[str, ...]  # of the Backend: the architecture
    host_flags: tuple[str, ...]  # for the host code of a device unit
    runtime: Path | None
    library_dirs: tuple[str, ...] = ()  # where the vendor's libraries may lie

    def unit_flags(self, request: BuildRequest) -> list[str]:
        """The flags of a device unit, the same in both lanes, without those that torch adds."""
        host = [f"-Xcompiler={flag}" for flag in self.host_flags]
        own = words(request.extra_cuda_cflags)
        # As in torch: who names an architecture gets that one alone.
        architecture = () if any("arch" in flag for flag in own) else self.flags
        return [*architecture, *host, "-Xptxas=-v", *own]

    def includes(self) -> list[str]:
        return [f"-isystem{folder}" for folder in self.toolkit.include_dirs]

    def link_flags(self) -> list[str]:
        """The runtime by its file name: the process holds torch's own under that name."""
        if self.runtime is None:
            return []
        return [f"-L{self.runtime.parent}", f"-l:{self.runtime.name}"]

    def libraries(self, flags: Sequence[str]) -> list[str]:
        """Link flags of a request, with the vendor's libraries by the names that they have here:
        packages bring them without the name that `-l` looks for."""
        return [part for flag in flags for part in self._library(flag)]

    def _library(self, flag: str) -> list[str]:
        if _VENDOR_LIBRARY.fullmatch(flag) is None:
            return [flag]
        name = f"lib{flag[2:]}.so"
        for folder in map(Path, self.library_dirs):
            if (folder / name).is_file():
                return [f"-L{folder}", flag]
            for versioned in sorted(folder.glob(f"{name}.*"), reverse=True):
                return [f"-L{folder}", f"-l:{versioned.name}"]
        return [flag]


def device_sources(request: BuildRequest) -> list[tuple[int, SourceText]]:
    return [item for item in enumerate(request.sources) if item[1].language != "cpp"]


def unsuitable(request: BuildRequest) -> str | None:
    """Why the device sources must take the stock lane, as a phrase; else None."""
    for flag in words(request.extra_cuda_cflags):
        if re.search(r"-rdc|relocatable-device-code|^-?-?dc$|-dlto|^-?-?dlink", flag):
            return f"{flag} asks for a device link"
    return None


def write_unit(request: BuildRequest, folder: Path, torch_include: Path) -> None:
    """Writes the device unit and what is generated for it into `folder`."""
    sources = device_sources(request)
    text = "\n".join(source.text for _, source in sources)
    names = operators.identifiers(text)
    generated = folder / FOLDER / "musacoder_generated"
    generated.mkdir(parents=True)
    (generated / "operators.h").write_text(
        operators.definitions(torch_include, names), encoding="utf-8"
    )
    (generated / "methods.h").write_text(
        operators.method_declarations(torch_include, names), encoding="utf-8"
    )
    parts = ["#define MC_TOOLKIT_HALF\n"] if _TOOLKIT_HALF.search(text) else []
    few = std_names.headers(text) if is_lean(text) else None
    if few is not None:
        parts.append("#define MC_DEVICE_UNIT\n")
    standard = std_names.rare_headers(names) if few is None else few
    parts += [f"#include <{header}>\n" for header in standard]
    parts += ["#include <cuda.h>\n"] if few is None or _DRIVER.search(text) else []
    parts += [f"#include <{header}>\n" for header in ("cfloat", *_IMPLICIT)]
    parts.append("#include <musacoder_generated/operators.h>\n")
    parts += [f'#line 1 "{virtual_name(index)}"\n{source.text}\n' for index, source in sources]
    (folder / UNIT).write_bytes("".join(parts).encode("utf-8", "surrogatepass"))


def is_lean(text: str) -> bool:
    """Whether the few headers, with those found by name, declare all that the text counts on."""
    return _LEFT_OUT.search(text) is None and std_names.headers(text) is not None


def arguments(
    device: DeviceCompiler,
    request: BuildRequest,
    prepared: Prepared,
    flags: Sequence[str],
    folder: Path,
    target: str,
) -> list[str]:
    """The command that compiles the unit in `folder` to the object `target`. `flags` are those of
    the host code of the lane: its language standard and ABI are taken from them."""
    kept = [flag for flag in flags if flag.startswith(("-std=", "-D"))]
    messages = [f"-Xcompiler={flag}" for flag in device.host.message_flags]
    return [
        device.toolkit.compiler, "-ccbin", device.host.path, *_COMMON_FLAGS, *kept,
        "-Xcompiler=-fPIC", *messages, *device.unit_flags(request),
        f"-DTORCH_EXTENSION_NAME={request.name}",
        f"-I{folder / FOLDER}", f"-I{folder}", *facade_includes(prepared.folder),
        *(f"-I{path}" for path in request.extra_include_paths),
        "-c", UNIT, "-o", target,
    ]  # fmt: skip


async def compile_unit(
    device: DeviceCompiler,
    request: BuildRequest,
    prepared: Prepared,
    flags: Sequence[str],
    folder: Path,
    timeout: float,
) -> tools.ToolResult:
    """Compiles the unit in `folder` to `device.o`. Raises OSError and tools.ToolError."""
    started = time.monotonic()
    command = arguments(device, request, prepared, flags, folder, OBJECT)
    dry = await tools.run([*command, *nvcc_steps.DRY_RUN], cwd=folder, timeout=timeout)
    steps = nvcc_steps.script(dry.output, request.key[:16]) if dry.returncode == 0 else None
    if steps is not None:
        (folder / "device.sh").write_text(steps, encoding="utf-8")
        command = ["/bin/sh", "device.sh"]
    left = max(1.0, timeout - (time.monotonic() - started))
    return await tools.run(command, cwd=folder, timeout=left)


def device_compiler(backend: Backend, info: WorkerInfo, host: Compiler) -> DeviceCompiler | None:
    """None where the Backend takes no device sources or their compiler is not installed."""
    toolkit = backend.toolkit([str(Path(info.torch_path).parent)])
    if toolkit is None:
        return None
    packages = sorted(str(path) for path in Path(info.torch_path).parent.glob("nvidia/*/lib"))
    return DeviceCompiler(
        toolkit,
        host,
        backend.device_flags,
        backend.host_flags,
        runtime_library(info, toolkit),
        (*toolkit.library_dirs, *packages),
    )
