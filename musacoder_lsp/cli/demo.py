"""`musacoder demo`: the main job on this machine, by the real server, driven as an editor does."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from musacoder_lsp.cli import options
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.editor_client import EditorClient, ServerGone

if TYPE_CHECKING:
    from rich.console import Console

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_EXAMPLE = Path(__file__).parents[2] / "examples" / "rms_norm_silu.py"
_ENDED = frozenset({"done", "failed", "cancelled"})
# Share of the bar that is full when a state begins; the rest of the time goes to timing.
_REACHED = {
    "queued": 2,
    "generating": 5,
    "preparing": 15,
    "compiling": 30,
    "checking": 50,
    "waiting": 70,
    "timing": 75,
    "comparing": 85,
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="do the main job on this machine and show what an editor would show",
        description="Starts the real language server over stdio, opens FILE, runs its first lens "
        "and prints what an editor would show.",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, default=_EXAMPLE)
    parser.add_argument("--python", metavar="PATH", help="the interpreter that has torch")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    try:
        text = options.read_text(arguments.file)
        # In a pipe a narrow default width would break the generated code's lines.
        plain = None if sys.stdout.isatty() else 110
        console = Console(stderr=arguments.json, width=plain, highlight=False)
        with tempfile.TemporaryDirectory(prefix="musacoder-demo-") as folder:
            path = Path(folder, "workspace", arguments.file.name)
            path.parent.mkdir()
            shutil.copyfile(arguments.file, path)
            session = _Session(console, path, text, arguments.file)
            shown = asyncio.run(session.play(arguments.python or sys.executable))
    except (Unusable, ServerGone) as problem:
        return options.fail(Unusable(str(problem)), as_json=arguments.json)
    if arguments.json:
        options.print_json(shown)
    return 0 if shown["state"] == "done" else 1


class _Session:
    """One editor session; results of earlier ones are left out, so that there is work to see."""

    def __init__(self, console: Console, path: Path, text: str, original: Path) -> None:
        self._console = console
        self._path = path
        self._text = text
        self._original = original
        self._uri = path.as_uri()

    async def play(self, python: str) -> dict[str, Any]:
        began = time.monotonic()
        server = [sys.executable, "-m", "musacoder_lsp.cli.lsp"]
        state = str(self._path.parents[1] / "state")
        async with EditorClient.connect(
            server,
            self._path.parent,
            settings={"python": python},
            environment={"XDG_STATE_HOME": state},
        ) as editor:
            self._say(f"opened {self._original} in a language server (process {editor.pid})")
            editor.open(self._uri, self._text)
            lens = await self._first_lens(editor)
            self._show_line(lens)
            ended = await self._run(editor, lens)
            lens = await self._first_lens(editor)
            self._show_line(lens)
            hover = await self._hover(editor, lens)
            self._console.print(_without_fence(hover), markup=False)
            generated = sorted(self._path.parent.glob(".musacoder/**/*.py"))
            self._show_sources(generated)
            self._console.print(f"\n[dim]{time.monotonic() - began:.1f} s in all[/dim]")
        return {
            "state": ended["state"],
            "lens": lens["command"]["title"],
            "hover": hover,
            "generated": [source.read_text(encoding="utf-8") for source in generated],
            "seconds": time.monotonic() - began,
        }

    async def _first_lens(self, editor: EditorClient) -> dict[str, Any]:
        """Asks again whenever the server says that its lenses have changed."""
        while True:
            changed = editor.next("workspace/codeLens/refresh")
            document = {"textDocument": {"uri": self._uri}}
            lenses = await editor.request("textDocument/codeLens", document)
            if lenses:
                first = lenses[0]
                if "command" not in first:
                    first = await editor.request("codeLens/resolve", first)
                changed.cancel()
                return dict(first)
            await changed

    async def _run(self, editor: EditorClient, lens: dict[str, Any]) -> dict[str, Any]:
        """Clicks the lens and follows its Job to the end; returns the last status."""
        command = lens["command"]
        with self._progress() as show:
            events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
            editor.on("musacoder/status", events.put_nowait)
            clicked = {"command": command["command"], "arguments": command["arguments"]}
            answer = await editor.request("workspace/executeCommand", clicked)
            if "job" not in answer:
                raise Unusable(str(answer.get("error", answer)))
            while True:
                status = await editor.until_gone(events.get())
                if status["job"] == answer["job"]:
                    show(status)
                    if status["state"] in _ENDED:
                        break
        if status["state"] != "done":
            self._say(f"{status['state']}: {status['detail']}")
        return dict(status)

    @contextmanager
    def _progress(self) -> Iterator[Any]:
        if not self._console.is_terminal:

            def line(status: dict[str, Any]) -> None:
                if status["state"] not in _ENDED:
                    self._say(status["text"])

            yield line
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(30), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task("queued", total=100)
            yield lambda status: bar.update(
                task,
                completed=_REACHED.get(status["state"], 100),
                description=status["text"],
            )

    async def _hover(self, editor: EditorClient, lens: dict[str, Any]) -> str:
        position = lens["range"]["start"]
        place = {"textDocument": {"uri": self._uri}, "position": position}
        answer = await editor.request("textDocument/hover", place)
        return str(answer["contents"]["value"]) if answer else ""

    def _show_line(self, lens: dict[str, Any]) -> None:
        """The line as the editor draws it: the lens above, the code below."""
        number = lens["range"]["start"]["line"]
        code = self._text.splitlines()[number]
        self._console.print(f"\n{'':5}[bold cyan]{lens['command']['title']}[/bold cyan]")
        self._console.print(f"{number + 1:4} {code}", markup=False)
        self._console.print()

    def _show_sources(self, generated: list[Path]) -> None:
        from rich.syntax import Syntax

        for source in generated:
            self._say(f"generated {source.relative_to(self._path.parent)}")
            self._console.print(Syntax(source.read_text(encoding="utf-8"), "python"))

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{text}[/dim]")


def _without_fence(hover: str) -> str:
    return "\n".join(line for line in hover.splitlines() if not line.startswith("```"))
