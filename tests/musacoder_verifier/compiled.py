"""Runs something with a compiled extension in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import musacoder_verifier
from musacoder_verifier.build_request import Artefact

_RUNTIME = Path(musacoder_verifier.__file__).parent / "runtime"


async def load_in_process(artefact: Artefact, body: str) -> Any:
    """Runs `body`, in which `m` is the loaded extension, and returns the JSON that it prints."""
    head = (
        f"import json, sys\nsys.path.insert(0, {str(_RUNTIME)!r})\nimport torch\n"
        "from musacoder_runtime import extension_loader\n"
        f"m = extension_loader.load(json.loads({json.dumps(asdict(artefact))!r}))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", head + body, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-4000:]
    return json.loads(output)
