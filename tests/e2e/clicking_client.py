"""A client process that can be killed: opens a file, clicks its first lens again and again, and
writes each state of each Job as a line `state pid-of-server`. Its arguments: the file, the
interpreter, and `timing` where the Jobs are to time their kernels, too."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from musacoder_lsp.editor_client import EditorClient


async def main(path: Path, python: str, timing: bool) -> None:
    server = [sys.executable, "-m", "musacoder_lsp.cli.lsp"]
    settings = {"python": python, "compileBaseline": False, "timing": timing}
    async with EditorClient.connect(server, path.parent, settings=settings) as editor:
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        editor.on("musacoder/status", events.put_nowait)
        editor.open(path.as_uri(), path.read_text(encoding="utf-8"))
        while True:
            document = {"textDocument": {"uri": path.as_uri()}}
            changed = editor.next("workspace/codeLens/refresh")
            lenses = await editor.request("textDocument/codeLens", document)
            if lenses:
                changed.cancel()
                break
            await changed
        lens = await editor.request("codeLens/resolve", lenses[0])
        site = lens["data"]["site"]
        clicked = {
            "command": "musacoder.generate",
            "arguments": [{"uri": path.as_uri(), "site": site}],
        }
        while True:
            job = (await editor.request("workspace/executeCommand", clicked))["job"]
            state = ""
            while state not in ("done", "failed", "cancelled"):
                status = await editor.until_gone(events.get())
                if status["job"] == job:
                    state = status["state"]
                    print(state, editor.pid, status["detail"].replace("\n", " "), flush=True)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], "timing" in sys.argv[3:]))
