"""The server as a process over stdio: what a test inside one process cannot see."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from lsprotocol import types as lsp
from pytest_lsp import LanguageClient, client_capabilities, make_test_lsp_client

from musacoder_lsp.editor_client import EditorClient

if TYPE_CHECKING:
    from conftest import ProcessCensus

pytestmark = pytest.mark.e2e

FAKES = Path(__file__).parents[1] / "lsp_fakes.py"
SOURCE = """import torch


# musacoder: x: f32[64, 64]
def act(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + 1
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "model.py").write_text(SOURCE)
    return folder


@contextlib.asynccontextmanager
async def editor(
    workspace: Path | None, census: ProcessCensus, tmp_path: Path, mode: str = "ok"
) -> AsyncIterator[EditorClient]:
    argv = [sys.executable, str(FAKES), mode]
    async with EditorClient.connect(
        argv, workspace, environment=surroundings(tmp_path, census)
    ) as c:
        yield c


def surroundings(tmp_path: Path, census: ProcessCensus) -> dict[str, str]:
    """State of its own, and a mark by which every descendant is found."""
    state = {"XDG_STATE_HOME": str(tmp_path / "s"), "XDG_CACHE_HOME": str(tmp_path / "c")}
    return {**os.environ, **state, **census.environment}


async def start_job(client: EditorClient, uri: str) -> dict[str, Any]:
    client.open(uri, SOURCE)
    await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    argument = {"uri": uri, "site": "function:act"}
    answer: dict[str, Any] = await client.request(
        "workspace/executeCommand", {"command": "musacoder.generate", "arguments": [argument]}
    )
    return answer


async def until_waiting(client: EditorClient) -> None:
    while True:
        listed = await client.request(
            "workspace/executeCommand", {"command": "musacoder.jobs", "arguments": []}
        )
        if [job["state"] for job in listed["jobs"]] in (["waiting"], []):
            return


@pytest.mark.parametrize("name", ["visual_studio_code", "neovim"])
async def test_pytest_lsp_accepts_every_answer(
    name: str, workspace: Path, tmp_path: Path, census: ProcessCensus
) -> None:
    """pytest-lsp checks each answer against what the client announced."""
    client: LanguageClient = make_test_lsp_client()
    uri = (workspace / "model.py").as_uri()
    await client.start_io(
        sys.executable, str(FAKES), "compile_error", env=surroundings(tmp_path, census)
    )
    folder = lsp.WorkspaceFolder(workspace.as_uri(), "w")
    await client.initialize_session(
        lsp.InitializeParams(capabilities=client_capabilities(name), workspace_folders=[folder])
    )
    item = lsp.TextDocumentItem(uri, "python", 1, SOURCE)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    document = lsp.TextDocumentIdentifier(uri)
    lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(document)) or []
    resolved = await client.code_lens_resolve_async(lenses[0])
    assert resolved.command is not None and resolved.command.title == "Generate kernel"
    await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams(resolved.command.command, resolved.command.arguments)
    )
    await client.wait_for_notification("textDocument/publishDiagnostics")
    found = client.diagnostics[uri]
    assert "compile error" in found[0].message
    here = lsp.Position(4, 5)
    hover = await client.text_document_hover_async(lsp.HoverParams(document, here))
    assert hover is not None
    context = lsp.CodeActionContext(diagnostics=found)
    actions = await client.text_document_code_action_async(
        lsp.CodeActionParams(document, lsp.Range(here, here), context)
    )
    assert any("Regenerate" in action.title for action in actions or [])
    await client.shutdown_session()
    await client.stop()


async def test_stray_output_never_reaches_the_protocol(
    workspace: Path, tmp_path: Path, census: ProcessCensus
) -> None:
    """P8 and P9: prints, raw writes to fd 1, and a child that echoes and reads stdin to its end."""
    async with editor(workspace, census, tmp_path, "noise") as client:
        uri = (workspace / "model.py").as_uri()
        answer = await start_job(client, uri)
        assert "job" in answer
        while True:
            lenses = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
            shown = await client.request("codeLens/resolve", lenses[0])
            if "vs eager" in shown["command"]["title"]:
                break
    assert client.process.returncode == 0


@pytest.mark.parametrize(
    "messages, code",
    [(["shutdown", "exit"], 0), (["exit"], 1), ([], 1)],
    ids=["shutdown and exit", "exit alone", "stdin closed"],
)
async def test_exit_codes(
    messages: list[str], code: int, workspace: Path, tmp_path: Path, census: ProcessCensus
) -> None:
    """P7: pygls ends with 0 whatever happened. P3: nothing holds the process."""
    async with editor(workspace, census, tmp_path, "hang") as client:
        await start_job(client, (workspace / "model.py").as_uri())
        await until_waiting(client)
        for method in messages:
            if method == "shutdown":
                assert await client.request(method, None) is None
            else:
                client.notify(method, None)
        if not messages:
            assert client.process.stdin is not None
            client.process.stdin.close()
        assert await client.process.wait() == code
    assert census.survivors() == []


async def test_cancel_kills_the_jobs_processes(
    workspace: Path, tmp_path: Path, census: ProcessCensus
) -> None:
    async with editor(workspace, census, tmp_path, "hang") as client:
        answer = await start_job(client, (workspace / "model.py").as_uri())
        await until_waiting(client)

        def sleepers() -> list[psutil.Process]:
            return [p for p in census.alive() if p.name() == "sleep"]

        while not sleepers():
            await asyncio.sleep(0.01)
        found = sleepers()
        cancelled = await client.request(
            "workspace/executeCommand", {"command": "musacoder.cancel", "arguments": [answer]}
        )
        assert cancelled == {"job": answer["job"], "cancelled": True}
        assert psutil.wait_procs(found, timeout=10)[1] == []
        await until_waiting(client)


async def test_a_killed_server_leaves_nothing(
    workspace: Path, tmp_path: Path, census: ProcessCensus
) -> None:
    """The analysis child dies with the server, however the server dies."""
    async with editor(workspace, census, tmp_path) as client:
        client.open((workspace / "model.py").as_uri(), SOURCE)
        await client.request(
            "textDocument/codeLens", {"textDocument": {"uri": (workspace / "model.py").as_uri()}}
        )
        assert len(census.alive()) == 2
        client.process.kill()
        await client.process.wait()
        assert census.survivors() == []


def test_a_killed_client_leaves_nothing(
    workspace: Path, tmp_path: Path, census: ProcessCensus
) -> None:
    """P12: another process still holds the pipe, so stdin never ends; the client's id tells."""
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from musacoder_lsp.editor_client import EditorClient\n"
        "async def main():\n"
        "    argv = [sys.executable, sys.argv[1], 'ok']\n"
        "    async with EditorClient.connect(argv, Path(sys.argv[2])) as client:\n"
        "        print(client.process.pid, flush=True)\n"
        "        await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", script, str(FAKES), str(workspace)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=surroundings(tmp_path, census),
    )
    assert client.stdout is not None
    server = int(client.stdout.readline())
    assert psutil.pid_exists(server)
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    assert census.survivors() == []


async def test_endurance(workspace: Path, tmp_path: Path, census: ProcessCensus) -> None:
    """P5: 20 000 edits grow pygls by 40 MB; here the bound is 12 MB over what is there at first."""
    async with editor(workspace, census, tmp_path) as client:
        uri = (workspace / "model.py").as_uri()
        client.open(uri, SOURCE)

        async def edits(first: int, last: int) -> int:
            for version in range(first, last):
                end = {"line": 0, "character": version % 2}
                change = {
                    "range": {"start": {"line": 0, "character": 0}, "end": end},
                    "text": "" if version % 2 else " ",
                }
                client.notify(
                    "textDocument/didChange",
                    {
                        "textDocument": {"uri": uri, "version": version},
                        "contentChanges": [change],
                    },
                )
                if version % 500 == 0:
                    await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
            await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
            return int(psutil.Process(client.process.pid).memory_info().rss)

        warm = await edits(2, 2_000)
        grown = await edits(2_000, 20_000) - warm
        assert grown < 12 * 2**20
        lenses = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
        assert lenses[0]["range"]["start"]["line"] == 4


async def test_a_client_that_stops_reading_blocks_nothing(
    workspace: Path, tmp_path: Path, census: ProcessCensus
) -> None:
    """P16: the answers pile up in memory while the server goes on reading; none is lost."""
    async with editor(workspace, census, tmp_path) as client:
        uri = (workspace / "model.py").as_uri()
        client.open(uri, SOURCE)
        await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
        transport: Any = client.process.stdout._transport  # type: ignore[union-attr]
        transport.pause_reading()
        place = {"textDocument": {"uri": uri}, "position": {"line": 4, "character": 5}}
        answers = [
            asyncio.ensure_future(client.request("textDocument/hover", place)) for _ in range(6000)
        ]
        await asyncio.sleep(0)
        assert client.process.stdin is not None
        await client.process.stdin.drain()
        transport.resume_reading()
        found = await asyncio.gather(*answers)
        assert all(item["contents"] for item in found)
