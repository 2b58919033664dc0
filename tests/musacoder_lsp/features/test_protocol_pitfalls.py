"""The pitfalls of pygls that can be met inside one process; see reference names P1 to P19."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
from lsp_capabilities import NEOVIM, VSCODE
from lsp_fakes import makers
from lsp_harness import Harness, harness

PLAIN: dict[str, Any] = {}


def ready(client: Harness, workspace: Path) -> str:
    uri = (workspace / "model.py").as_uri()
    client.open(uri, (workspace / "model.py").read_text())
    client.expected |= {"window/showMessage", "textDocument/publishDiagnostics"}
    client.answers["client/registerCapability"] = lambda _: None
    return uri


async def test_cancelling_a_command_request_leaves_no_work_behind(workspace: Path) -> None:
    """P1: a handler holds no work, so there is nothing for `$/cancelRequest` to leave running."""
    async with harness(makers("hang"), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)
        await client.lenses(uri)
        pending = asyncio.ensure_future(
            client.raw(
                "workspace/executeCommand",
                {
                    "command": "musacoder.generate",
                    "arguments": [{"uri": uri, "site": "function:act"}],
                },
            )
        )
        await asyncio.sleep(0)
        client.notify("$/cancelRequest", {"id": client._number})
        await pending
        for job in client.server.session.runner.all_active():
            client.server.session.cancel(job.id)
            await client.job_ended(job.id)
        assert client.server.session.runner.all_active() == []


async def test_no_handler_runs_in_a_thread(workspace: Path) -> None:
    """P2 and P3: nothing is submitted to pygls' pool, which also holds the process at its end."""
    async with harness(makers(), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)
        await client.lenses(uri)
        assert client.server._thread_pool is None
        manager = client.server.protocol.fm
        assert not any(getattr(f, "execute_in_thread", False) for f in manager.features.values())


async def test_shutdown_with_requests_pending(workspace: Path) -> None:
    """P4: pygls iterates over its futures while they change."""
    async with harness(makers("hang"), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)
        lenses = asyncio.ensure_future(
            client.raw("textDocument/codeLens", {"textDocument": {"uri": uri}})
        )
        await client.lenses(uri)
        await client.command("generate", {"uri": uri, "site": "function:act"})
        others = [
            asyncio.ensure_future(
                client.raw("textDocument/codeLens", {"textDocument": {"uri": uri}})
            )
            for _ in range(5)
        ]
        answer = await client.raw("shutdown", None)
        assert answer["result"] is None
        await asyncio.gather(lenses, *others)
        refused = await client.raw("textDocument/codeLens", {"textDocument": {"uri": uri}})
        assert refused["error"]["code"] == -32600
        client.server.protocol._shutdown = False


async def test_notifications_leave_nothing_behind(workspace: Path) -> None:
    """P5: pygls keeps a future for each."""
    async with harness(makers(), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)
        await client.lenses(uri)
        for version in range(2, 500):
            client.change(uri, version, {"text": f"x = {version}\n"})
        protocol = client.server.protocol
        assert len(protocol._request_futures) < 5 and len(protocol._result_types) < 5
        assert protocol.progress.tokens == {}


async def test_an_unanswered_request_is_forgotten(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: a client that never answers must not fill the memory."""
    monkeypatch.setattr("musacoder_lsp.features.protocol._ANSWER_PATIENCE", 0.0)
    async with harness(makers(), PLAIN, [workspace]) as client:
        client.answers["window/showDocument"] = lambda _: {"success": True}
        with pytest.raises(TimeoutError):
            await client.server.ask("custom/silence", None)
        assert client.unhandled.pop()["method"] == "custom/silence"
        assert client.server.protocol._result_types == {}


async def test_a_change_of_a_file_that_is_not_open_is_harmless(workspace: Path) -> None:
    """P10: pygls raises KeyError and shows a message for each."""
    async with harness(makers(), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)
        for version in range(3):
            client.change("file:///never/opened.py", version, {"text": "x"})
        client.notify("textDocument/didClose", {"textDocument": {"uri": "file:///never.py"}})
        client.notify("textDocument/didSave", {"textDocument": {"uri": "file:///never.py"}})
        assert await client.titles(uri)
        assert client.sent("window/showMessage") == []


async def test_failing_notifications_are_shown_once(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10: one message per kind, the log has the rest."""
    async with harness(makers(), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)

        def broken(*_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(client.server.session, "saved", broken)
        for _ in range(4):
            client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        assert len(client.sent("window/showMessage")) == 1


@pytest.mark.parametrize(
    "command, arguments",
    [
        ("generate", []),
        ("generate", [None]),
        ("generate", [{"uri": 3}]),
        ("generate", [{"uri": "file:///nowhere.py", "site": "function:f"}]),
        ("generate", [{"uri": "MODEL", "site": "function:gone"}]),
        ("generate", [{"uri": "MODEL", "range": {"start": 1}}]),
        ("repair", [{"uri": "MODEL"}]),
        ("cancel", [{"job": 7}]),
        ("showReport", [{"uri": "MODEL", "site": "x"}]),
        ("showDiff", [{"uri": "MODEL", "site": "function:act"}]),
        ("annotate", [{"uri": "MODEL", "site": "function:act", "hash": "old"}]),
        ("nothing", [1, 2, 3]),
    ],
)
async def test_commands_answer_what_failed(
    workspace: Path, command: str, arguments: list[Any]
) -> None:
    """P10: a raising command would be shown twice in VS Code."""
    async with harness(makers(), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)
        await client.lenses(uri)
        text = json.dumps(arguments).replace("MODEL", uri)
        answer = await client.command(command, *json.loads(text))
        assert isinstance(answer["error"], str) and answer["error"].endswith(".")


async def test_capabilities_are_pinned(workspace: Path) -> None:
    """P15: whatever is registered, this is what a client reads."""
    async with harness(makers(), VSCODE, [workspace]) as client:
        client.answers["client/registerCapability"] = lambda _: None
        capabilities = next(m for m in client.received if "result" in m)["result"]["capabilities"]
    assert capabilities == {
        "positionEncoding": "utf-16",
        "textDocumentSync": {
            "openClose": True,
            "change": 2,
            "willSave": False,
            "save": {"includeText": False},
        },
        "hoverProvider": True,
        "codeActionProvider": {
            "codeActionKinds": ["quickfix", "refactor.rewrite"],
            "resolveProvider": True,
        },
        "codeLensProvider": {"resolveProvider": True},
        "executeCommandProvider": {
            "commands": [
                "musacoder.generate",
                "musacoder.repair",
                "musacoder.cancel",
                "musacoder.annotate",
                "musacoder.showReport",
                "musacoder.showDiff",
                "musacoder.jobs",
            ]
        },
        "workspace": {
            "workspaceFolders": {"supported": True, "changeNotifications": True},
            "fileOperations": {},
        },
    }


@pytest.mark.parametrize(
    "encodings, chosen", [(["utf-8", "utf-16"], "utf-8"), (["utf-32"], "utf-32")]
)
async def test_the_clients_first_encoding_is_taken(
    workspace: Path, encodings: list[str], chosen: str
) -> None:
    capabilities = {"general": {"positionEncodings": encodings}}
    async with harness(makers(), capabilities, [workspace]) as client:
        uri = (workspace / "new.py").as_uri()
        client.open(
            uri,
            "import torch\n\nv = '🚀'; f = 3\ndef g(x: torch.Tensor):\n    return torch.tanh(x)\n",
        )
        assert client.server.documents.opened(uri).encoding == chosen  # type: ignore[union-attr]
        found = await client.lenses(uri)
        assert [lens["range"]["start"] for lens in found] == [{"line": 3, "character": 0}]


async def test_edits_in_one_burst_stay_in_order(workspace: Path) -> None:
    """P17: a synchronous handler cannot interleave with itself."""
    async with harness(makers(), PLAIN, [workspace]) as client:
        uri = ready(client, workspace)
        client.change(uri, 2, {"text": ""})
        for version in range(3, 203):
            at = {"line": 0, "character": version - 3}
            client.change(
                uri, version, {"range": {"start": at, "end": at}, "text": str(version % 10)}
            )
        expected = "".join(str(version % 10) for version in range(3, 203))
        opened = client.server.documents.opened(uri)
        assert opened is not None and opened.text == expected and opened.version == 202
        view = client.server.session.documents.view(uri)
        assert view is not None and view.version == 202


def test_pygls_deprecation_stays_silent() -> None:
    """P19: only that one warning is filtered."""
    import musacoder_lsp.server  # noqa: F401

    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.filterwarnings("always")
        warnings.filterwarnings(
            "ignore", message=".*iscoroutinefunction.*", category=DeprecationWarning
        )
        warnings.warn("'asyncio.iscoroutinefunction' is deprecated", DeprecationWarning, 1)
        warnings.warn("something else", DeprecationWarning, 1)
    assert [str(item.message) for item in caught] == ["something else"]


@pytest.mark.parametrize(
    "message, code",
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"id": 9, "method": "x"}', -32600),
        (
            b'{"jsonrpc": "2.0", "id": 9, "method": "textDocument/hover", "params": {"x": 1}}',
            -32602,
        ),
        (b'{"jsonrpc": "2.0", "id": 9, "method": "no/such", "params": {}}', -32601),
    ],
)
async def test_each_request_gets_exactly_one_answer(
    workspace: Path, message: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with harness(makers(), PLAIN, [workspace]) as client:
        seen: list[dict[str, Any]] = []
        client._receive = seen.append  # type: ignore[method-assign, assignment]
        client.server.protocol.receive(message)
        del client._receive
        answers = [item for item in seen if "error" in item]
        assert [item["error"]["code"] for item in answers] == [code]


async def test_requests_before_initialize_are_refused() -> None:
    from musacoder_lsp.server import KernelServer

    client = Harness(KernelServer(makers()))
    answer = await client.raw("shutdown", None)
    assert answer["error"]["code"] == -32002
    client.notify("textDocument/didSave", {"textDocument": {"uri": "file:///a.py"}})
    assert client.unhandled == []


async def test_settings_are_pulled_per_folder_and_bad_ones_are_named(places: Path) -> None:
    folders = [places / "one", places / "two"]
    for folder in folders:
        folder.mkdir()
    answers: list[Any] = [{"maxTurns": 5}, {"maxTurns": "many", "enginee": "synth"}, None]
    async with harness(makers(), VSCODE, folders, options={"maxTurns": 2}) as client:
        client.expected.add("window/showMessage")
        registered = []
        client.answers["client/registerCapability"] = registered.append
        client.answers["workspace/configuration"] = lambda _: answers
        await client.until(lambda: len(client.sent("window/showMessage")) >= 2)
        session = client.server.session
        assert session.settings_of(str(folders[0] / "a.py")).max_turns == 5
        assert session.settings_of(str(folders[1] / "a.py")).max_turns == 3
        assert session.settings_of("/elsewhere.py").max_turns == 2
        told = " ".join(params["message"] for params in client.sent("window/showMessage"))
        assert "maxTurns" in told and "musacoder.engine?" in told
        answers[0] = {"maxTurns": 7}
        client.notify("workspace/didChangeConfiguration", {"settings": None})
        await client.until(lambda: session.settings_of(str(folders[0] / "a.py")).max_turns == 7)


async def test_folders_come_and_go(workspace: Path, places: Path) -> None:
    other = places / "other"
    other.mkdir()
    async with harness(makers(), PLAIN, [workspace]) as client:
        item = {"uri": other.as_uri(), "name": "other"}
        first = {"uri": workspace.as_uri(), "name": "workspace"}
        event = {"added": [item], "removed": [first]}
        client.notify("workspace/didChangeWorkspaceFolders", {"event": event})
        assert [folder.path for folder in client.server.session.folders] == [other.resolve()]


async def test_without_a_folder_files_go_to_the_cache_with_a_note(places: Path) -> None:
    lone = places / "lone.py"
    lone.write_text("")
    async with harness(makers(), NEOVIM, []) as client:
        client.expected |= {"window/showMessage", "$/progress"}
        client.answers["window/workDoneProgress/create"] = lambda _: None
        text = "import torch\n# musacoder: x: f32[8]\ndef f(x):\n    return torch.tanh(x)\n"
        client.open(lone.as_uri(), text)
        await client.lenses(lone.as_uri())
        answer = await client.command("generate", {"uri": lone.as_uri(), "site": "function:f"})
        await client.job_ended(answer["job"])
        assert (await client.titles(lone.as_uri()))[0].startswith("2.31x")
        assert list((places / "cache").rglob("f_cpu_*.py"))
        assert "no workspace folder" in client.sent("window/showMessage")[0]["message"]
        assert not (places / ".musacoder").exists()


@pytest.mark.parametrize("text", ["", "\0\1\2binary", "class", "def f(:\n" * 50, "\ufeff# bom\n"])
async def test_odd_files_have_no_lenses_and_no_errors(workspace: Path, text: str) -> None:
    async with harness(makers(), NEOVIM, [workspace]) as client:
        client.expected.add("window/showMessage")
        uri = (workspace / "odd.py").as_uri()
        client.open(uri, text)
        assert await client.lenses(uri) == []
        place = {"textDocument": {"uri": uri}, "position": {"line": 3, "character": 9}}
        assert await client.request("textDocument/hover", place) is None


async def test_the_last_good_lenses_stay_while_typing(workspace: Path) -> None:
    async with harness(makers(), NEOVIM, [workspace]) as client:
        uri = ready(client, workspace)
        before = [lens["range"]["start"]["line"] for lens in await client.lenses(uri)]
        at = {"line": 0, "character": 0}
        client.change(uri, 2, {"range": {"start": at, "end": at}, "text": "def broken(:\n\n"})
        after = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
        assert [lens["range"]["start"]["line"] for lens in after] == [line + 2 for line in before]
        assert all(lens["range"]["start"] != lens["range"]["end"] for lens in after)


async def test_only_is_honoured_and_plaintext_hover_too(workspace: Path) -> None:
    capabilities = json.loads(json.dumps(VSCODE))
    capabilities["textDocument"]["hover"]["contentFormat"] = ["plaintext"]
    async with harness(makers(), capabilities, [workspace]) as client:
        uri = ready(client, workspace)
        await client.lenses(uri)
        place = {"line": 5, "character": 4}

        async def titles(only: list[str] | None) -> list[str]:
            context: dict[str, Any] = {"diagnostics": []}
            if only is not None:
                context["only"] = only
            params = {
                "textDocument": {"uri": uri},
                "range": {"start": place, "end": place},
                "context": context,
            }
            found = await client.request("textDocument/codeAction", params)
            return [action["title"] for action in found]

        assert await titles(["source.organizeImports"]) == []
        assert await titles(["quickfix"]) == []
        assert await titles(["refactor"]) == ["Generate a kernel for function act"]
        assert await titles(None) == await titles(["refactor.rewrite"])
        hover = await client.request(
            "textDocument/hover", {"textDocument": {"uri": uri}, "position": place}
        )
        assert hover["contents"]["kind"] == "plaintext" and "`" not in hover["contents"]["value"]


async def test_a_defect_of_ours_ends_the_job_and_nothing_else(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with harness(makers("raise"), NEOVIM, [workspace]) as client:
        uri = ready(client, workspace)
        await client.lenses(uri)
        for _ in range(2):
            answer = await client.command("generate", {"uri": uri, "site": "function:act"})
            await client.job_ended(answer["job"])
            assert "Internal error: a defect of ours" in (await client.titles(uri))[0]


async def test_unsaved_text_wins_over_the_disk(workspace: Path) -> None:
    verified = makers()
    async with harness(verified, NEOVIM, [workspace]) as client:
        uri = ready(client, workspace)
        text = (workspace / "model.py").read_text().replace("+ 1\n", "+ 41\n", 1)
        client.change(uri, 2, {"text": text})
        await client.lenses(uri)
        answer = await client.command("generate", {"uri": uri, "site": "function:act"})
        await client.job_ended(answer["job"])
        engine: Any = verified.engine(client.server.session.default_settings)
        assert "+ 41" in engine.requests[-1].reference
