"""`textDocument/codeAction`: from memory alone, because saving waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from musacoder_lsp.analysis.documents import Spot
from musacoder_lsp.features.diagnostics import SOURCE
from musacoder_lsp.features.document import OpenDocument, file_path
from musacoder_lsp.lens import SiteState

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

GENERATE = types.CodeActionKind.RefactorRewrite
REPAIR = types.CodeActionKind.QuickFix
KINDS = [REPAIR, GENERATE]

_WORDS = {"module": "class", "function": "function", "call": "operation", "selection": "selection"}
# Sites around the cursor that are offered, the innermost first.
_OFFERED = 3


def code_action(
    ls: KernelServer, params: types.CodeActionParams
) -> list[types.CodeAction | types.Command]:
    document = ls.documents.opened(params.text_document.uri)
    view = ls.session.documents.view(document.uri) if document is not None else None
    if document is None or view is None or view.note is not None:
        return []
    start, end = document.offset_at(params.range.start), document.offset_at(params.range.end)
    line, line_end = document.line_bounds(document.line_of(start))
    # The Sites that hold the range, and those whose own line it begins on.
    around = [
        spot
        for spot in view.current()
        if (spot.start <= start and end <= spot.end) or line <= spot.header <= line_end
    ]
    around.sort(key=lambda spot: spot.end - spot.start)
    actions: list[types.CodeAction] = []
    for spot in around[:_OFFERED]:
        state = ls.session.state(document.uri, spot)
        actions.extend(_for_site(ls, document, spot, state, params))
    if end > start and document.text[start:end].strip():
        actions.append(_for_range(document, params.range, "selection"))
    elif any(not line <= spot.header <= line_end for spot in around):
        actions.append(_for_range(document, params.range, "operation under the cursor"))
    only = params.context.only
    chosen = [action for action in actions if _wanted(action, only)]
    if ls.client.action_literals:
        return [_fitted(ls, action) for action in chosen]
    return [action.command for action in chosen if action.command and not action.disabled]


def _for_site(
    ls: KernelServer,
    document: OpenDocument,
    spot: Spot,
    state: SiteState,
    params: types.CodeActionParams,
) -> Iterator[types.CodeAction]:
    site = spot.site
    argument = {"uri": document.uri, "site": site.id, "hash": site.fingerprint}
    named = f"{_WORDS[site.kind]} {site.name}" if site.kind != "selection" else "selection"
    mine = [
        item
        for item in params.context.diagnostics
        if item.source == SOURCE
        and isinstance(item.data, dict)
        and item.data.get("site") == site.id
    ]
    if state.job is not None and not state.job.ended:
        yield _action(
            f"Cancel the job on {named}", GENERATE, "musacoder.cancel", {"job": state.job.id}
        )
        return
    if site.missing and not document.damaged:
        yield types.CodeAction(
            title=f"Write the shapes of {', '.join(site.missing)} as a comment",
            kind=GENERATE,
            data={**argument, "version": document.version},
        )
    trajectory = state.trajectory if state.stale is None else None
    last = trajectory.last if trajectory is not None else None
    if trajectory is not None and trajectory.best is None and last is not None:
        if trajectory.retriable:
            limit = ls.session.settings_of(file_path(document.uri)).max_turns
            turn = f"turn {last.number + 1} of {max(limit, last.number + 1)}"
            action = _action(
                f"Repair the kernel of {named} ({turn})", REPAIR, "musacoder.repair", argument
            )
            action.is_preferred, action.diagnostics = True, mine or None
            yield action
        again = _action(f"Regenerate the kernel of {named}", REPAIR, "musacoder.generate", argument)
        again.diagnostics = mine or None
        yield again
    word = "Regenerate" if trajectory is not None else "Generate"
    generate = _action(f"{word} a kernel for {named}", GENERATE, "musacoder.generate", argument)
    if site.missing:
        generate.disabled = types.CodeActionDisabled(f"needs shapes: {', '.join(site.missing)}")
        generate.command = None
    yield generate
    if trajectory is not None and len(trajectory.turns) > 1:
        diff = _action("Show diff with the last turn", GENERATE, "musacoder.showDiff", argument)
        yield _by_model(ls, diff, trajectory.model)
    if trajectory is not None and trajectory.turns:
        shown = _action("Show the generated kernel", GENERATE, "musacoder.showReport", argument)
        yield _by_model(ls, shown, trajectory.model)


def _for_range(document: OpenDocument, chosen: types.Range, what: str) -> types.CodeAction:
    """The range travels in the client's own units."""
    place = {
        "start": {"line": chosen.start.line, "character": chosen.start.character},
        "end": {"line": chosen.end.line, "character": chosen.end.character},
    }
    argument = {"uri": document.uri, "range": place, "version": document.version}
    return _action(f"Generate a kernel for the {what}", GENERATE, "musacoder.generate", argument)


def _action(
    title: str, kind: types.CodeActionKind, command: str, argument: dict[str, Any]
) -> types.CodeAction:
    return types.CodeAction(
        title=title, kind=kind, command=types.Command(title, command, arguments=[argument])
    )


def _by_model(ls: KernelServer, action: types.CodeAction, model: str | None) -> types.CodeAction:
    """The tag says that a language model wrote what the action brings, so only where one did."""
    if model is not None and types.CodeActionTag.LlmGenerated in ls.client.action_tags:
        action.tags = [types.CodeActionTag.LlmGenerated]
    return action


def _wanted(action: types.CodeAction, only: Any) -> bool:
    """`only` names kinds or their beginnings: `refactor` wants `refactor.rewrite` too."""
    if only is None:
        return True
    kind = str(getattr(action.kind, "value", action.kind))
    asked = [str(getattr(item, "value", item)) for item in only]
    return any(item == "" or kind == item or kind.startswith(f"{item}.") for item in asked)


def _fitted(ls: KernelServer, action: types.CodeAction) -> types.CodeAction:
    """Leaves out what the client did not announce, and fills in what it cannot ask for later."""
    if action.disabled is not None and not ls.client.disabled_actions:
        action.title = f"{action.title} ({action.disabled.reason})"
        action.disabled = None
    if not ls.client.preferred_actions:
        action.is_preferred = None
    if action.data is not None and not ls.client.resolves_action_edit:
        action.command = types.Command(action.title, "musacoder.annotate", arguments=[action.data])
        action.data = None
    return action
