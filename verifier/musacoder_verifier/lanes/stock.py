"""The stock lane: the real `torch.utils.cpp_extension.load_inline`, in the user's interpreter.

The extension is built there but not loaded: what a Candidate compiled runs in its sandbox only.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from musacoder_verifier import diagnostics, tools
from musacoder_verifier.build_request import BuildRequest
from musacoder_verifier.diagnostics import virtual_name
from musacoder_verifier.lanes.device import DeviceCompiler
from musacoder_verifier.lanes.fast import LaneResult
from musacoder_verifier.toolchain import Compiler
from musacoder_verifier.worker import RUNTIME, WorkerInfo

_BUILDER = RUNTIME / "musacoder_runtime" / "stock_build.py"


async def compile_request(
    request: BuildRequest,
    info: WorkerInfo,
    compiler: Compiler,
    flags: Sequence[str],
    folder: Path,
    timeout: float,
    device: DeviceCompiler | None = None,
) -> LaneResult:
    """Builds one request in `folder` as `load_inline` would. Raises OSError and tools.ToolError."""
    build = folder / "build"
    build.mkdir()
    # torch adds its own language standard, the same that the fast lane takes from it.
    own_flags = [flag for flag in flags if not flag.startswith("-std=")]
    order = {
        "name": request.name,
        "cpp_sources": _lined(request, "cpp"),
        "cuda_sources": _lined(request, "cuda"),
        "functions": dict(request.functions) or None,
        "extra_cflags": [*own_flags, *compiler.message_flags, *request.extra_cflags],
        "extra_cuda_cflags": device.unit_flags(request) if device is not None else [],
        "extra_ldflags": [*(["-fopenmp"] if "-fopenmp" in flags else []), *request.extra_ldflags],
        "extra_include_paths": list(request.extra_include_paths),
        "with_cuda": request.with_cuda,
        "build_directory": str(build),
    }
    order_file = folder / "order.json"
    order_file.write_text(json.dumps(order), encoding="utf-8")
    for index, source in enumerate(request.sources):
        # The compiler quotes the lines of its messages from here.
        (build / virtual_name(index)).write_bytes(source.text.encode("utf-8", "surrogatepass"))
    search = os.pathsep.join((str(Path(info.python).parent), os.environ.get("PATH", os.defpath)))
    result = await tools.run(
        [info.python, str(_BUILDER), str(order_file)],
        cwd=folder,
        timeout=timeout,
        environment={
            "CXX": compiler.path,
            "MAX_JOBS": "2",
            "PATH": search,
            "TORCH_EXTENSIONS_DIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"CUDA_HOME": device.toolkit.home} if device is not None else {}),
        },
    )
    messages = await asyncio.to_thread(diagnostics.parse, result.output)
    library = build / f"{request.name}.so"
    made = library if result.returncode == 0 and library.is_file() else None
    return LaneResult(made, messages, result.output, result.seconds, result.timed_out)


def _lined(request: BuildRequest, language: str) -> list[str]:
    return [
        f'#line 1 "{virtual_name(index)}"\n{source.text}'
        for index, source in enumerate(request.sources)
        if source.language == language
    ]
