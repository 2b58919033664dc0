"""The main path over the protocol, in this process, with a faked engine and verifier."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lsp_capabilities import NEOVIM, VSCODE
from lsp_fakes import FakeEngine, FakeVerifier, makers
from lsp_harness import Harness, harness

TEXT = "textDocument/codeAction"


def uri_of(workspace: Path) -> str:
    return (workspace / "model.py").as_uri()


def opened(client: Harness, workspace: Path) -> str:
    uri = uri_of(workspace)
    client.open(uri, (workspace / "model.py").read_text())
    client.expected |= {"textDocument/publishDiagnostics", "window/showMessage", "$/progress"}
    client.answers.setdefault("window/workDoneProgress/create", lambda _: None)
    client.answers.setdefault("client/registerCapability", lambda _: None)
    client.answers.setdefault("window/showDocument", lambda _: {"success": True})
    return uri


async def generate(client: Harness, uri: str, site: str = "function:act") -> dict[str, Any]:
    await client.server.session.documents.first_analysis(uri, 30)
    answer: dict[str, Any] = await client.command("generate", {"uri": uri, "site": site})
    await client.job_ended(answer["job"])
    return answer


@pytest.mark.parametrize("capabilities", [VSCODE, NEOVIM], ids=["vscode", "neovim"])
async def test_from_lens_to_figure(workspace: Path, capabilities: dict[str, Any]) -> None:
    async with harness(makers(), capabilities, [workspace]) as client:
        uri = opened(client, workspace)
        assert await client.titles(uri) == ["Generate kernel", "needs shapes: x"]
        await generate(client, uri)
        assert (await client.titles(uri))[0] == (
            "2.31x vs eager · 1.12x vs compile · synth, no model"
        )
        hover = await client.request(
            "textDocument/hover",
            {"textDocument": {"uri": uri}, "position": {"line": 5, "character": 6}},
        )
        text = hover["contents"]["value"]
        assert hover["contents"]["kind"] == "markdown" and text.startswith("````text\n")
        assert max(map(len, text.splitlines())) < 80
        for part in ("2.31x", "backward", "test cpu", "x f32[1024, 1024]", "no model", "±1.0%"):
            assert part in text
        written = list((workspace / ".musacoder").rglob("*.py"))
        assert len(written) == 1
        assert (workspace / ".musacoder" / ".gitignore").read_text() == "*\n"
        assert (workspace / "model.py").read_text() == client.server.documents.opened(uri).text


async def test_lenses_survive_a_restart_and_grow_stale(workspace: Path) -> None:
    async with harness(makers(), NEOVIM, [workspace]) as client:
        await generate(client, opened(client, workspace))
    text = (workspace / "model.py").read_text()
    async with harness(makers(), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.server.session.documents.first_analysis(uri, 30)
        while (title := (await client.titles(uri))[0]) == "Generate kernel":
            await asyncio.sleep(0.01)  # the store is read on its own thread
        assert title.startswith("2.31x vs eager")
        client.change(uri, 2, {"text": text.replace("+ 1\n", "+ 2\n", 1)})
        while (title := (await client.titles(uri))[0]).startswith("2.31x"):
            await asyncio.sleep(0.01)
        assert title == "stale (was 2.31x vs eager · 1.12x vs compile)"
        client.change(uri, 3, {"text": text})
        while (title := (await client.titles(uri))[0]).startswith("stale"):
            await asyncio.sleep(0.01)
        assert title.startswith("2.31x vs eager")


async def test_a_failed_compile_is_a_diagnostic_on_both_files(workspace: Path) -> None:
    async with harness(makers("compile_error"), VSCODE, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        assert (await client.titles(uri))[0] == "failed: compile error"
        published = {
            p["uri"]: p["diagnostics"] for p in client.sent("textDocument/publishDiagnostics")
        }
        assert len(published) == 2
        (mine,) = published.pop(uri)
        assert mine["range"]["start"]["line"] == 5 and mine["source"] == "musacoder"
        ((generated, (theirs,)),) = published.items()
        assert generated.endswith(".py") and theirs["range"]["start"] == {"line": 2, "character": 4}
        assert mine["relatedInformation"][0]["location"]["uri"] == generated
        actions = await client.request(
            TEXT,
            {
                "textDocument": {"uri": uri},
                "range": mine["range"],
                "context": {"diagnostics": [mine], "only": ["quickfix"]},
            },
        )
        assert [action["title"] for action in actions] == ["Regenerate the kernel of function act"]
        client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        last = {p["uri"]: p["diagnostics"] for p in client.sent("textDocument/publishDiagnostics")}
        assert last == {uri: [], generated: []}


async def test_repair_takes_the_next_turn_and_the_best_is_kept(workspace: Path) -> None:
    engine = FakeEngine("repairable", "openai", "MusaCoder 9B", 3, "musacoder-9b")
    verifier = FakeVerifier("repairable")
    settings = {"maxTurns": 1}
    async with harness(
        makers("repairable", engine, verifier), VSCODE, [workspace], options=settings
    ) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        place = {"line": 5, "character": 4}
        params = {
            "textDocument": {"uri": uri},
            "range": {"start": place, "end": place},
            "context": {"diagnostics": []},
        }
        actions = await client.request(TEXT, params)
        repair = next(action for action in actions if "Repair" in action["title"])
        assert repair["kind"] == "quickfix" and repair["isPreferred"]
        answer = await client.request("workspace/executeCommand", repair["command"])
        await client.job_ended(answer["job"])
        assert engine.requests[-1].turn == 2
        feedback = engine.requests[-1].feedback
        assert feedback is not None and "bad" in feedback.detail
        assert (await client.titles(uri))[0] == "2.31x vs eager · 1.12x vs compile"
        actions = await client.request(TEXT, params)
        diff = next(action for action in actions if "diff" in action["title"])
        assert diff["tags"] == [1]
        shown = await client.command("showDiff", *diff["command"]["arguments"])
        assert "-# turn 1" in shown["diff"] and "+# turn 2" in shown["diff"]


async def test_synth_is_never_tagged_as_written_by_a_model(workspace: Path) -> None:
    async with harness(makers(), VSCODE, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        place = {"line": 5, "character": 4}
        actions = await client.request(
            TEXT,
            {
                "textDocument": {"uri": uri},
                "range": {"start": place, "end": place},
                "context": {"diagnostics": []},
            },
        )
        assert actions and all("tags" not in action for action in actions)


async def test_missing_shapes_become_a_versioned_comment(workspace: Path) -> None:
    async with harness(makers(), VSCODE, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        place = {"line": 13, "character": 4}
        params = {
            "textDocument": {"uri": uri},
            "range": {"start": place, "end": place},
            "context": {"diagnostics": [], "only": ["refactor"]},
        }
        actions = await client.request(TEXT, params)
        write = next(action for action in actions if "shapes" in action["title"])
        disabled = next(action for action in actions if "disabled" in action)
        assert disabled["disabled"]["reason"] == "needs shapes: x"
        resolved = await client.request("codeAction/resolve", write)
        (change,) = resolved["edit"]["documentChanges"]
        assert change["textDocument"] == {"uri": uri, "version": 1}
        (edit,) = change["edits"]
        assert edit["newText"].startswith("# musacoder: x: ") and edit["newText"].endswith("\n")
        assert edit["range"]["start"] == edit["range"]["end"] == {"line": 13, "character": 0}
        client.change(uri, 2, {"text": "\n" + (workspace / "model.py").read_text()})
        stale = await client.request("codeAction/resolve", write)
        assert "edit" not in stale


async def test_a_selection_gets_its_own_job_and_lens(workspace: Path) -> None:
    async with harness(makers(), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        chosen = {"start": {"line": 6, "character": 11}, "end": {"line": 6, "character": 28}}
        answer = await client.command("generate", {"uri": uri, "range": chosen, "version": 1})
        assert "job" in answer, answer
        await client.job_ended(answer["job"])
        shown = await client.lenses(uri)
        assert [lens["range"]["start"]["line"] for lens in shown].count(6) == 1


async def test_the_users_own_failure_stands_on_its_line(workspace: Path) -> None:
    async with harness(makers("reference_error"), VSCODE, [workspace]) as client:
        uri = opened(client, workspace)
        await generate(client, uri)
        assert (await client.titles(uri))[0] == "failed: reference error: NameError: no such name"
        (diagnostic,) = client.sent("textDocument/publishDiagnostics")[-1]["diagnostics"]
        assert diagnostic["range"]["start"] == {"line": 6, "character": 4}
        assert diagnostic["severity"] == 1


async def test_declined_is_said_in_the_engines_words(workspace: Path) -> None:
    async with harness(makers("declined"), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        assert (await client.titles(uri))[0] == "conv2d is not covered by synth"


async def test_correct_but_slower_reads_as_information(workspace: Path) -> None:
    async with harness(makers("slower"), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        assert (await client.titles(uri))[0] == "correct, slower 0.70x · synth, no model"
        assert all(
            params["diagnostics"] == [] for params in client.sent("textDocument/publishDiagnostics")
        )


async def test_progress_begins_and_always_ends(workspace: Path) -> None:
    async with harness(makers("hang"), VSCODE, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        answer = await client.command("generate", {"uri": uri, "site": "function:act"})
        begin = await client.until(
            lambda: [p for p in client.sent("$/progress") if p["value"]["kind"] == "begin"]
        )
        assert begin[0]["value"]["cancellable"]
        shown = await client.titles(uri)
        assert shown[:2] == ["waiting for cpu:0", "cancel"]
        client.notify("window/workDoneProgress/cancel", {"token": begin[0]["token"]})
        await client.job_ended(answer["job"])
        kinds = [p["value"]["kind"] for p in client.sent("$/progress")]
        assert kinds[-1] == "end" and kinds.count("end") == kinds.count("begin") == 1
        assert (await client.titles(uri))[0] == "Generate kernel"


async def test_the_latest_request_on_a_site_wins(workspace: Path) -> None:
    async with harness(makers("hang"), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        jobs = [
            (await client.command("generate", {"uri": uri, "site": "function:act"}))["job"]
            for _ in range(3)
        ]
        runner = client.server.session.runner
        states = [runner.get(job).status.state for job in jobs]  # type: ignore[union-attr]
        assert states[1] == "cancelled" and states[2] == "queued"
        assert "replaced" in runner.get(jobs[1]).status.detail  # type: ignore[union-attr]
        for job in (jobs[2], jobs[0]):
            assert (await client.command("cancel", {"job": job}))["cancelled"]
            await client.job_ended(job)


async def test_status_only_for_those_who_ask(workspace: Path) -> None:
    rich = {**NEOVIM, "experimental": {"musacoderStatus": True}}
    async with harness(makers(), rich, [workspace]) as client:
        uri = opened(client, workspace)
        client.expected.add("musacoder/status")
        await client.lenses(uri)
        await generate(client, uri)
        states = [params["state"] for params in client.sent("musacoder/status")]
        assert states[0] == "queued" and states[-1] == "done" and "waiting" in states
    async with harness(makers(), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        assert client.sent("musacoder/status") == []


async def test_an_edited_generated_file_is_verified_again(workspace: Path) -> None:
    verifier = FakeVerifier()
    async with harness(makers(verifier=verifier), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        (file,) = (workspace / ".musacoder").rglob("*.py")
        edited = file.read_text() + "# by hand\n"
        client.open(file.as_uri(), edited)
        file.write_text(edited)
        client.notify("textDocument/didSave", {"textDocument": {"uri": file.as_uri()}})
        while len(verifier.verified) < 2 or client.server.session.runner.all_active():
            await asyncio.sleep(0.01)
        assert verifier.verified[1].source == edited
        assert verifier.verified[1].provenance.engine == "hand"
        # The watch sees the same change; it must not be verified a second time.
        await client.server.session._check_changed_file(str(file))
        assert client.server.session.runner.all_active() == []
        assert len(verifier.verified) == 2


async def test_another_program_changes_a_generated_file(workspace: Path) -> None:
    verifier = FakeVerifier()
    async with harness(makers(verifier=verifier), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        await generate(client, uri)
        (file,) = (workspace / ".musacoder").rglob("*.py")
        foreign = file.with_name("foreign.py")
        foreign.write_text("class ModelNew: ...\n")
        file.write_text(file.read_text() + "# by another program\n")
        while len(verifier.verified) < 2:
            await asyncio.sleep(0.01)
        assert verifier.verified[1].path == str(file)


async def test_what_came_with_a_clone_is_not_run(workspace: Path) -> None:
    """It is in `.musacoder/` and saved in the editor, but this user's store never made it."""
    verifier = FakeVerifier()
    folder = workspace / ".musacoder" / "model"
    folder.mkdir(parents=True)
    foreign = folder / "act_cpu_00000000.py"
    foreign.write_text("class ModelNew: ...\n")
    async with harness(makers(verifier=verifier), NEOVIM, [workspace]) as client:
        uri = opened(client, workspace)
        await client.lenses(uri)
        client.open(foreign.as_uri(), "class ModelNew: pass\n")
        client.notify("textDocument/didSave", {"textDocument": {"uri": foreign.as_uri()}})
        session = client.server.session
        await session._check_generated(str(foreign), "class ModelNew: pass\n", "test")
        assert verifier.verified == [] and session.runner.all_active() == []
