"""`musacoder.showReport`: `{uri, site}`; opens the generated file and answers with the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.features.commands.arguments import site_of, target
from musacoder_lsp.report import report
from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def show_report(ls: KernelServer, arguments: Sequence[Any]) -> dict[str, Any]:
    argument = target(arguments)
    state = ls.state_of(argument["uri"], site_of(argument))
    if state is None:
        raise Refusal("That code is no longer in the file; look at the lenses again.")
    text = "\n".join(report(state, ls.now()))
    trajectory = state.trajectory
    turn = (trajectory.best or trajectory.last) if trajectory is not None else None
    path = turn.candidate.path if turn is not None else None
    if path is not None and Path(path).is_file():
        if ls.client.show_document:
            params = types.ShowDocumentParams(uri=Path(path).as_uri(), take_focus=True)
            ls.spawn(ls.ask(types.WINDOW_SHOW_DOCUMENT, params))
    else:
        path = None
    return {"report": text, "file": path}
