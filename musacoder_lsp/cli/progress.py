"""The progress bar of `generate` and `verify`: on a terminal only, always on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from musacoder_lsp.assistant import (
    AssistantEvent,
    Exporting,
    Generating,
    TurnEnded,
    Verifying,
)

# How much of a Turn is over when a stage begins, from the stages' usual shares.
_REACHED = {
    "collect": 15,
    "prepare": 20,
    "compile": 25,
    "correctness": 50,
    "legality": 65,
    "timing": 70,
    "profile": 77,
    "baseline": 80,
}
_WORDS = {
    "collect": "reading the candidate",
    "prepare": "preparing, once",
    "compile": "compiling",
    "correctness": "checking",
    "legality": "checking",
    "timing": "timing",
    "profile": "profiling",
    "baseline": "comparing with torch.compile",
}


def describe(event: AssistantEvent) -> tuple[int, str] | None:
    """Percent done and what goes on; None for an event that says nothing new."""
    if isinstance(event, Exporting):
        return 2, "exporting the operator graph"
    if isinstance(event, Generating):
        message = event.progress.message if event.progress else "generating"
        return 8, _turn(event.turn, event.of, message)
    if isinstance(event, TurnEnded):
        return 100, f"turn {event.turn.number}: {event.turn.verdict.status}"
    if event.state == "ended":
        return None
    words = _WORDS.get(event.stage, event.stage)
    if event.state == "waiting":
        words = f"waiting for {event.detail.get('device', 'the device')}"
    return _REACHED.get(event.stage, 50), _turn(event.turn, event.of, words)


def _turn(turn: int, of: int, words: str) -> str:
    return f"attempt {turn}/{of}: {words}" if of > 1 else words


def verifying(stage: str, state: str, seconds: float, detail: object) -> Verifying:
    """A stage of a verification that belongs to no Turn."""
    return Verifying(1, 1, stage, state, seconds, detail if isinstance(detail, dict) else {})


@contextlib.contextmanager
def shown(title: str) -> Iterator[Callable[[AssistantEvent], None]]:
    """Yields the listener that moves the bar."""
    if not sys.stderr.isatty():
        yield lambda event: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(24),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=100, title=title)
        began = time.monotonic()

        def listen(event: AssistantEvent) -> None:
            step = describe(event)
            if step is not None:
                bar.update(task, completed=step[0], description=step[1])

        yield listen
        bar.update(task, completed=100, description=f"{time.monotonic() - began:.1f} s")
