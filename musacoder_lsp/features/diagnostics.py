"""`textDocument/publishDiagnostics`: pushed, because results come from background Jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types
from musacoder_verifier.policy import condemns
from musacoder_verifier.verdict import Diagnostic, Failure

from musacoder_lsp.analysis.documents import Spot, source_name
from musacoder_lsp.assistant import Turn
from musacoder_lsp.features.document import OpenDocument, column_to_units
from musacoder_lsp.lens import SiteState
from musacoder_lsp.sites.document import Document

if TYPE_CHECKING:
    from musacoder_lsp.server import KernelServer

SOURCE = "musacoder"
# Errors of the compiler that a Site's diagnostic points to.
_RELATED = 5

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


def publish(ls: KernelServer, uri: str) -> None:
    """One diagnostic on each Site whose kernel failed, and the compiler's words on the lines of the
    generated file itself. What no longer speaks of the present source is taken away."""
    document = ls.documents.opened(uri)
    view = ls.session.documents.view(document.uri) if document is not None else None
    if document is None or view is None:
        return
    found: list[types.Diagnostic] = []
    generated: dict[str, list[types.Diagnostic]] = {}
    for spot in ls.session.spots_with_results(document.uri):
        state = ls.session.state(document.uri, spot)
        trajectory = state.trajectory
        if trajectory is not None and state.stale is None and trajectory.failure is not None:
            found.append(_on_site(ls, document, spot, trajectory.failure))
            continue
        turn = _shown_turn(state)
        if turn is None:
            continue
        if turn.candidate.path is not None:
            theirs = generated.setdefault(Path(turn.candidate.path).as_uri(), [])
            theirs.extend(_in_generated(ls, turn, document.uri, spot))
        if turn.verdict.status != "ok":
            diagnostic = _on_site(ls, document, spot, turn.verdict.failure, turn.verdict.status)
            if ls.client.related_information:
                diagnostic.related_information = _related(document, turn)
            found.append(diagnostic)
    _send(ls, document.uri, found, document.version)
    before = ls.published.get(document.uri, frozenset())
    for other in before - set(generated):
        _send(ls, other, [], None)
    for other, items in generated.items():
        _send(ls, other, items, None)
    ls.published[document.uri] = frozenset(generated)


def clear(ls: KernelServer, uri: str) -> None:
    """The document is closed: its diagnostics and those of its generated files go."""
    _send(ls, uri, [], None)
    for other in ls.published.pop(uri, frozenset()):
        if ls.documents.opened(other) is None:
            _send(ls, other, [], None)


def _shown_turn(state: SiteState) -> Turn | None:
    if state.trajectory is None or state.stale is not None:
        return None
    return state.trajectory.best or state.trajectory.last


def _on_site(
    ls: KernelServer,
    document: OpenDocument,
    spot: Spot,
    failure: Failure | None,
    status: str | None = None,
) -> types.Diagnostic:
    """On the Site's own line; where the user's code fails, on the line that fails."""
    status = failure.status if failure is not None else status or "failed"
    words = status.replace("_", " ")
    place = _header(document, spot)
    theirs = status == "reference_error"
    here = failure is not None and (
        failure.file is None or source_name("", failure.file) == source_name("", document.path)
    )
    if theirs and here and failure is not None and failure.line is not None:
        line = min(max(failure.line - 1, 0), document.line_count - 1)
        start, end = document.line_bounds(line)
        indent = len(document.line_text(line)) - len(document.line_text(line).lstrip())
        place = document.range_at(start + indent, end)
    message = f"{words}: {failure.message}" if failure is not None else words
    return types.Diagnostic(
        range=place,
        message=message if theirs else f"No kernel for {spot.site.name}: {message}",
        severity=types.DiagnosticSeverity.Error if theirs else types.DiagnosticSeverity.Warning,
        code=status,
        source=SOURCE,
        data={"uri": document.uri, "site": spot.site.id, "hash": spot.site.fingerprint},
    )


def _related(document: OpenDocument, turn: Turn) -> list[types.DiagnosticRelatedInformation] | None:
    """The first errors of the compiler, in the generated file."""
    if turn.verdict.compile is None:
        return None
    text = Document(turn.candidate.source)
    errors = [
        item
        for item in turn.verdict.compile.diagnostics
        if item.severity == "error" and Path(item.file).is_absolute()
    ]
    return [
        types.DiagnosticRelatedInformation(
            types.Location(Path(item.file).as_uri(), _range(text, item, document.encoding)),
            item.message,
        )
        for item in errors[:_RELATED]
    ] or None


def _in_generated(ls: KernelServer, turn: Turn, uri: str, spot: Spot) -> list[types.Diagnostic]:
    verdict = turn.verdict
    text = Document(turn.candidate.source)
    encoding = ls.documents.position_encoding
    data = {"uri": uri, "site": spot.site.id, "hash": spot.site.fingerprint}
    items = list(verdict.compile.diagnostics) if verdict.compile is not None else []
    found = [
        types.Diagnostic(
            range=_range(text, item, str(encoding)),
            message=item.message,
            severity=_SEVERITIES[item.severity],
            source=SOURCE,
            data=data,
        )
        for item in items
        if item.file == turn.candidate.path
    ]
    failure = verdict.failure
    if (
        failure is not None
        and failure.line is not None
        and not found
        and failure.file
        in (
            None,
            turn.candidate.path,
        )
        and verdict.status != "reference_error"
    ):
        place = Diagnostic("", failure.line, 1, "error", failure.message)
        found.append(
            types.Diagnostic(
                range=_range(text, place, str(encoding)),
                message=failure.message,
                severity=types.DiagnosticSeverity.Error,
                code=verdict.status,
                source=SOURCE,
                data=data,
            )
        )
    if verdict.legality is not None:
        for finding in verdict.legality.findings:
            if finding.line is None:
                continue
            violation = condemns(verdict.policy, finding)
            place = Diagnostic("", finding.line, finding.column or 1, "error", "")
            found.append(
                types.Diagnostic(
                    range=_range(text, place, str(encoding)),
                    message=f"{finding.rule}: {finding.evidence}",
                    severity=types.DiagnosticSeverity.Error
                    if violation
                    else types.DiagnosticSeverity.Hint,
                    source=SOURCE,
                    data=data,
                )
            )
    return found


def _header(document: OpenDocument, spot: Spot) -> types.Range:
    line = document.line_of(min(spot.header, len(document.text)))
    end = document.line_start(line) + len(document.line_text(line))
    return document.range_at(spot.header, end)


def _range(text: Document, item: Diagnostic, encoding: str) -> types.Range:
    """From a 1-based place to the end of its line, in the client's units."""
    line = min(max(item.line - 1, 0), len(text.line_starts) - 1)
    content = text.line_text(line)
    column = min(max(item.column - 1, 0), len(content))
    return types.Range(
        types.Position(line, column_to_units(content, column, encoding)),
        types.Position(line, column_to_units(content, len(content), encoding)),
    )


def _send(ls: KernelServer, uri: str, items: list[types.Diagnostic], version: int | None) -> None:
    if not items and uri not in ls.has_diagnostics:
        return
    if items:
        ls.has_diagnostics.add(uri)
    else:
        ls.has_diagnostics.discard(uri)
    ls.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(uri=uri, diagnostics=items, version=version)
    )
