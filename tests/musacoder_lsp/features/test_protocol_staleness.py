"""Results that stop to hold, and results of other windows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lsp_capabilities import NEOVIM
from lsp_fakes import makers
from lsp_harness import Harness, harness

USER = """import torch
from helper import scale


# musacoder: x: f32[64, 64]
def act(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * scale(x)
"""
HELPER = "import torch\n\n\ndef scale(x: torch.Tensor) -> torch.Tensor:\n    return x + {n}\n"


def opened(client: Harness, file: Path) -> str:
    client.expected |= {"window/showMessage", "textDocument/publishDiagnostics", "$/progress"}
    client.answers["window/workDoneProgress/create"] = lambda _: None
    client.open(file.as_uri(), file.read_text())
    return file.as_uri()


async def until_title(client: Harness, uri: str, start: str) -> None:
    while not (await client.titles(uri))[0].startswith(start):
        await asyncio.sleep(0.01)  # nothing tells a client without refresh


async def generated(client: Harness, uri: str) -> None:
    await client.lenses(uri)
    answer = await client.command("generate", {"uri": uri, "site": "function:act"})
    await client.job_ended(answer["job"])
    await until_title(client, uri, "2.31x")


async def test_a_changed_import_makes_the_figure_stale(workspace: Path) -> None:
    user, helper = workspace / "user.py", workspace / "helper.py"
    user.write_text(USER)
    helper.write_text(HELPER.format(n=1))
    async with harness(makers(), NEOVIM, [workspace]) as client:
        uri = opened(client, user)
        await generated(client, uri)
        helper.write_text(HELPER.format(n=2))
        client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        await until_title(client, uri, "stale")
        helper.write_text(HELPER.format(n=1))
        client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        await until_title(client, uri, "2.31x")


async def test_another_interpreter_makes_the_figure_stale(workspace: Path) -> None:
    python = workspace / ".venv" / "bin" / "python"
    async with harness(makers(), NEOVIM, [workspace], environment={"PATH": "/usr/bin"}) as client:
        uri = opened(client, workspace / "model.py")
        await generated(client, uri)
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
        await until_title(client, uri, "stale")


async def test_a_result_of_another_window_appears(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musacoder_lsp.session._LOOK_ELSEWHERE", 0.02)
    async with (
        harness(makers(), NEOVIM, [workspace]) as one,
        harness(makers(), NEOVIM, [workspace]) as other,
    ):
        first = opened(one, workspace / "model.py")
        second = opened(other, workspace / "model.py")
        await other.lenses(second)
        await generated(one, first)
        await until_title(other, second, "2.31x")


async def test_two_documents_of_one_file_share_a_result(workspace: Path) -> None:
    """Other spellings of the URI are one document; a link to the file shares its results."""
    link = workspace / "link.py"
    link.symlink_to(workspace / "model.py")
    async with harness(makers(), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace / "model.py")
        await generated(client, uri)
        spelled = uri.replace("%20", " ")
        assert (await client.titles(spelled))[0].startswith("2.31x")
        await until_title(client, opened(client, link), "2.31x")
