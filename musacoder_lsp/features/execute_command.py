"""`workspace/executeCommand`: one table, and no command ever raises."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.features.commands.annotate import annotate
from musacoder_lsp.features.commands.arguments import BadArguments
from musacoder_lsp.features.commands.cancel import cancel
from musacoder_lsp.features.commands.generate import generate
from musacoder_lsp.features.commands.jobs import jobs
from musacoder_lsp.features.commands.repair import repair
from musacoder_lsp.features.commands.show_diff import show_diff
from musacoder_lsp.features.commands.show_report import show_report
from musacoder_lsp.session import Refusal

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

logger = logging.getLogger(__name__)

Command = Callable[["KernelServer", Sequence[Any]], Awaitable[dict[str, Any]]]

COMMANDS: Mapping[str, Command] = {
    "musacoder.generate": generate,
    "musacoder.repair": repair,
    "musacoder.cancel": cancel,
    "musacoder.annotate": annotate,
    "musacoder.showReport": show_report,
    "musacoder.showDiff": show_diff,
    "musacoder.jobs": jobs,
}


async def execute_command(ls: KernelServer, params: types.ExecuteCommandParams) -> dict[str, Any]:
    """The command's result, or `{"error": sentence}`, which is shown to the user once."""
    command = COMMANDS.get(params.command)
    if command is None:
        return {"error": f"There is no command {params.command}."}
    try:
        return await command(ls, params.arguments or [])
    except (BadArguments, Refusal) as problem:
        sentence = str(problem)
    except Exception as problem:
        logger.exception("%s failed", params.command)
        sentence = f"{params.command} failed: {problem or type(problem).__name__}."
    ls.note(sentence, types.MessageType.Warning, again=True)
    return {"error": sentence}
