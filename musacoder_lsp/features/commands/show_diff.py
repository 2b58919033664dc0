"""`musacoder.showDiff`: `{uri, site}`; what the last turn changed against the one before it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.features.commands.arguments import site_of, target
from musacoder_lsp.places import write_atomically
from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer


async def show_diff(ls: KernelServer, arguments: Sequence[Any]) -> dict[str, Any]:
    argument = target(arguments)
    state = ls.state_of(argument["uri"], site_of(argument))
    turns = state.trajectory.turns if state is not None and state.trajectory is not None else ()
    if len(turns) < 2:
        raise Refusal("There is only one turn on that Site, so there is nothing to compare.")
    before, after = turns[-2], turns[-1]
    lines = difflib.unified_diff(
        before.candidate.source.splitlines(),
        after.candidate.source.splitlines(),
        f"turn {before.number}",
        f"turn {after.number}",
        lineterm="",
    )
    text = "\n".join(lines) + "\n"
    path = after.candidate.path
    if path is None:
        return {"diff": text, "file": None}
    target_file = Path(path).with_suffix(".diff")
    try:
        write_atomically(target_file, text.encode("utf-8", "surrogatepass"))
    except OSError:
        return {"diff": text, "file": None}
    if ls.client.show_document:
        params = types.ShowDocumentParams(uri=target_file.as_uri(), take_focus=True)
        ls.spawn(ls.ask(types.WINDOW_SHOW_DOCUMENT, params))
    return {"diff": text, "file": str(target_file)}
