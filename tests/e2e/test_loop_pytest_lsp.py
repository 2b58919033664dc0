"""The main job over stdio with the real engine and verifier, as VS Code and as Neovim do it.

VS Code asks for lenses again when the server says so. Neovim 0.11 knows no such request: there a
plugin asks again on events of its own, here on each progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lsp_capabilities import NEOVIM, VSCODE
from lsprotocol import converters
from lsprotocol import types as lsp
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient
from pytest_lsp.client import DEFAULT_CLIENT_FEATURES, register_lsp_features

if TYPE_CHECKING:
    from conftest import ProcessCensus

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[2] / "examples" / "rms_norm_silu.py"
SETTINGS = {"python": sys.executable, "compileBaseline": False}
FIGURES = ("vs eager", "correct, slower")


class Editor:
    """An open document in a client with some editor's capabilities."""

    def __init__(self, client: LanguageClient, path: Path) -> None:
        self.client = client
        self.uri = path.as_uri()
        self.document = lsp.TextDocumentIdentifier(self.uri)
        self.refreshes = 0
        self.edits: list[lsp.ApplyWorkspaceEditParams] = []
        self.told = asyncio.Event()

    async def lens(self) -> lsp.CodeLens | None:
        """The first lens with its words; not the one that cancels."""
        params = lsp.CodeLensParams(self.document)
        lenses = await self.client.text_document_code_lens_async(params)
        return await self.client.code_lens_resolve_async(lenses[0]) if lenses else None

    async def lens_that(self, wanted: Callable[[str], bool]) -> lsp.CodeLens:
        """Asks again whenever the server has told something, and now and then as editors do."""
        while True:
            self.told.clear()
            lens = await self.lens()
            if lens is not None and lens.command is not None and wanted(lens.command.title):
                return lens
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.told.wait()

    async def execute(self, command: str, *arguments: Any) -> Any:
        params = lsp.ExecuteCommandParams(command, list(arguments))
        return await self.client.workspace_execute_command_async(params)

    async def hover(self, lens: lsp.CodeLens) -> str:
        params = lsp.HoverParams(self.document, lens.range.start)
        found = await self.client.text_document_hover_async(params)
        assert found is not None and isinstance(found.contents, lsp.MarkupContent)
        return found.contents.value


@contextlib.asynccontextmanager
async def opened(
    path: Path, capabilities: dict[str, Any], environment: dict[str, str]
) -> AsyncIterator[Editor]:
    client = LanguageClient(converter_factory=default_converter)
    editor = Editor(client, path)

    def progress(client: LanguageClient, params: lsp.ProgressParams) -> None:
        DEFAULT_CLIENT_FEATURES[lsp.PROGRESS](client, params)
        editor.told.set()

    def refresh(params: None) -> None:
        editor.refreshes += 1
        editor.told.set()

    def apply_edit(params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
        editor.edits.append(params)
        return lsp.ApplyWorkspaceEditResult(applied=True)

    def registered(params: lsp.RegistrationParams) -> None:
        return None

    register_lsp_features(client, {**DEFAULT_CLIENT_FEATURES, lsp.PROGRESS: progress})
    client.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)(refresh)
    client.feature(lsp.WORKSPACE_APPLY_EDIT)(apply_edit)
    client.feature(lsp.CLIENT_REGISTER_CAPABILITY)(registered)
    client.set_configuration(SETTINGS, section="musacoder")
    server = [sys.executable, "-m", "musacoder_lsp.cli.lsp"]
    await client.start_io(*server, env={**os.environ, **environment})
    await client.initialize_session(
        lsp.InitializeParams(
            capabilities=converters.get_converter().structure(capabilities, lsp.ClientCapabilities),
            workspace_folders=[lsp.WorkspaceFolder(path.parent.as_uri(), path.parent.name)],
            initialization_options=SETTINGS,
        )
    )
    item = lsp.TextDocumentItem(editor.uri, "python", 1, path.read_text())
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    try:
        yield editor
    finally:
        await client.shutdown_session()
        await client.stop()


@pytest.mark.parametrize("capabilities", [VSCODE, NEOVIM], ids=["vscode", "neovim"])
async def test_from_the_lens_to_a_result_that_outlives_the_server(
    capabilities: dict[str, Any],
    tmp_path: Path,
    census: ProcessCensus,
    cache_environment: dict[str, str],
) -> None:
    path = tmp_path / "a workspace" / EXAMPLE.name
    path.parent.mkdir()
    source = EXAMPLE.read_text().replace("1024", "64").replace("2048", "256")
    path.write_text(source)
    environment = {
        **census.environment,
        **cache_environment,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    has_refresh = capabilities is VSCODE

    async with opened(path, capabilities, environment) as editor:
        offered = await editor.lens_that(lambda title: title == "Generate kernel")
        assert offered.command is not None and offered.command.arguments is not None
        answer = await editor.execute(offered.command.command, *offered.command.arguments)
        listed = await editor.execute("musacoder.jobs")
        assert [job["job"] for job in listed["jobs"]] == [answer["job"]], "no id at once"

        seen = []

        def ended(title: str) -> bool:
            seen.append(title)
            return title.startswith("failed") or any(words in title for words in FIGURES)

        shown = await editor.lens_that(ended)
        assert shown.command is not None
        result = shown.command.title
        assert not result.startswith("failed"), (result, await editor.hover(shown))
        assert any("checking" in title or "compiling" in title for title in seen[:-1]), seen
        assert "Generate kernel" not in seen
        assert (editor.refreshes > 0) is has_refresh

        hover = await editor.hover(shown)
        assert "no model" in hover and "eager" in hover and "within tolerance" in hover, hover
        for reports in editor.client.progress_reports.values():
            kinds = [report.kind for report in reports]  # type: ignore[attr-defined]
            assert (kinds[0], kinds[-1]) == ("begin", "end"), kinds
            assert kinds.count("begin") == kinds.count("end") == 1, kinds
        assert len(editor.client.progress_reports) == 1

        assert path.read_text() == source and editor.edits == []
        generated = list(path.parent.glob(".musacoder/**/*.py"))
        assert len(generated) == 1 and "class ModelNew" in generated[0].read_text()
    assert census.survivors() == []

    async with opened(path, capabilities, environment) as editor:
        stored = await editor.lens_that(lambda title: title != "Generate kernel")
        assert stored.command is not None and stored.command.title == result
        assert await editor.hover(stored) == hover
        assert (await editor.execute("musacoder.jobs"))["jobs"] == []
        assert not any("zygote.py" in " ".join(p.cmdline()) for p in census.alive())

        line = next(i for i, text in enumerate(source.splitlines()) if "rsqrt" in text)
        column = source.splitlines()[line].index("torch.rsqrt")
        change = lsp.TextDocumentContentChangePartial(
            lsp.Range(lsp.Position(line, column), lsp.Position(line, column)), "2.0 * "
        )
        versioned = lsp.VersionedTextDocumentIdentifier(2, editor.uri)
        editor.client.text_document_did_change(lsp.DidChangeTextDocumentParams(versioned, [change]))
        stale = await editor.lens_that(lambda title: title != result)
        assert stale.command is not None and stale.command.title.startswith("stale"), stale
        assert stale.command.command == "musacoder.generate"
        assert editor.client.progress_reports == {}
    assert census.survivors() == []
