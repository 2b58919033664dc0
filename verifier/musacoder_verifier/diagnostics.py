"""What a compiler printed, as Diagnostics on the lines of the Candidate's own file.

Both lanes compile each source string under a virtual file name (`#line 1 "musacoder_source_0"`),
so that the compiler itself counts lines inside the string; here they are moved to where the string
stands in the Candidate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from musacoder_verifier.build_request import SourceText
from musacoder_verifier.verdict import Diagnostic, Severity

_VIRTUAL = re.compile(r"musacoder_source_(\d+)(?:\.\w+)?$")
# gcc and clang: `file:line:column: severity: message`; old ones leave the column out.
_GNU = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning|note|remark): (?P<message>.*)$"
)
# nvcc's front end: `file(line): error #20: message`, without a column.
_EDG = re.compile(
    r"^(?P<file>[^(\n]+)\((?P<line>\d+)\): "
    r"(?P<severity>catastrophic error|error|warning|note|remark)(?: #[\w-]+)?: (?P<message>.*)$"
)
# How gcc leads from the source to an error inside a header: these lines come before the error.
_LEADING = re.compile(
    r"^(?:In file included from |\s+from )?(?P<file>musacoder_source_\d+):(?P<line>\d+)"
    r"(?::(?P<column>\d+))?(?::?\s+(?P<words>required from here)|[:,]$)"
)
_UNDEFINED = re.compile(r"undefined reference to [`‘'](?P<symbol>[^'’\n]+)['’]")
_UNRESOLVED = re.compile(r"undefined symbol: (?P<symbol>.+)$")
_NO_PLACE = re.compile(r"^(?:[\w./+-]+: )?(?:fatal )?error: (?P<message>.+)$")
_SEVERITIES: dict[str, Severity] = {
    "fatal error": "error",
    "catastrophic error": "error",
    "error": "error",
    "warning": "warning",
    "note": "note",
    "remark": "note",
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a compiler, where the compiler saw it. `source` is the index of the source
    string that it stands in, None for a header or the linker; columns count bytes from 1."""

    file: str
    line: int
    column: int
    severity: Severity
    text: str
    source: int | None
    notes: tuple[Message, ...] = ()


def virtual_name(index: int) -> str:
    """The name under which source string `index` is compiled."""
    return f"musacoder_source_{index}"


def parse(output: str) -> tuple[Message, ...]:
    """The messages in a compiler's output, in its order, each with the notes that follow it."""
    messages: list[Message] = []
    leading: Message | None = None
    for line in output.splitlines():
        message = _message(line.rstrip())
        if message is None:
            leading = _leading(line.rstrip()) or leading
            continue
        if message.severity != "note":
            if message.source is None and leading is not None:
                message = replace(message, notes=(leading,))
            leading = None
        if message.severity == "note" and messages:
            messages[-1] = replace(messages[-1], notes=(*messages[-1].notes, message))
        elif not messages or message != messages[-1]:
            messages.append(message)
    return tuple(messages)


def _leading(line: str) -> Message | None:
    found = _LEADING.match(line)
    if found is None:
        return None
    virtual = _VIRTUAL.search(found["file"])
    words = found["words"] or "included from here"
    place = (int(found["line"]), int(found["column"] or 1))
    return Message(found["file"], *place, "note", words, int(virtual[1]) if virtual else None)


def _message(line: str) -> Message | None:
    found = _GNU.match(line) or _EDG.match(line)
    if found is not None:
        column = found.groupdict().get("column")
        file = found["file"].strip()
        virtual = _VIRTUAL.search(file)
        return Message(
            file,
            int(found["line"]),
            int(column or 1),
            _SEVERITIES[found["severity"]],
            found["message"].strip(),
            int(virtual[1]) if virtual else None,
        )
    undefined = _UNDEFINED.search(line) or _UNRESOLVED.search(line)
    if undefined is not None:
        return Message("", 0, 0, "error", f"undefined reference to `{undefined['symbol']}`", None)
    bare = _NO_PLACE.match(line)
    if bare is not None and "ld returned" not in line and "linker command failed" not in line:
        return Message("", 0, 0, "error", bare["message"], None)
    return None


def on_candidate(
    messages: Sequence[Message], sources: Sequence[SourceText], path: str
) -> tuple[Diagnostic, ...]:
    """The messages as Diagnostics of the Candidate's file `path`.

    A message inside a header is placed on the note that leads into the Candidate, where there is
    one; a linker's message on the first use of the symbol's name. What has no place at all, and
    what stands in a computed source string, goes to line 1 and says so.
    """
    return tuple(_diagnostic(message, sources, path) for message in messages)


def _diagnostic(message: Message, sources: Sequence[SourceText], path: str) -> Diagnostic:
    text, anchor = message.text, message
    if message.source is None:
        leading = next((note for note in message.notes if note.source is not None), None)
        if leading is not None:
            anchor = replace(leading, text=message.text)
        else:
            anchor = _first_use(message, sources)
    line, column, text = _place(anchor, text, sources)
    related = []
    for note in message.notes:
        if note.source is None:
            if note.file:
                related.append((note.file, note.line, note.column, note.text))
        else:
            note_line, note_column, note_text = _place(note, note.text, sources)
            related.append((path, note_line, note_column, note_text))
    return Diagnostic(path, line, column, message.severity, text, tuple(related))


def _first_use(message: Message, sources: Sequence[SourceText]) -> Message:
    symbol = re.search(r"undefined reference to `(?:.*::)?(~?\w+)", message.text)
    if symbol is None:
        return message
    word = re.compile(rf"\b{re.escape(symbol[1])}\b")
    for index, source in enumerate(sources):
        for number, line in enumerate(source.text.split("\n"), start=1):
            found = word.search(line)
            if found is not None:
                column = len(line[: found.start()].encode("utf-8", "surrogatepass")) + 1
                return replace(message, source=index, line=number, column=column)
    return message


def _place(message: Message, text: str, sources: Sequence[SourceText]) -> tuple[int, int, str]:
    """Line and column in the Candidate's file, in characters from 1, and the text to show."""
    if message.source is None or message.source >= len(sources):
        return 1, 1, f"{text} (in {message.file}:{message.line})" if message.file else text
    source = sources[message.source]
    lines = source.text.split("\n")
    written = lines[message.line - 1] if 1 <= message.line <= len(lines) else ""
    column = _characters(written, message.column)
    if source.line is None:
        return 1, 1, f"{text} (line {message.line} of a computed source: {written.strip()})"
    line = source.line + message.line - 1
    if message.line == 1 and source.column is not None:
        column += source.column - 1
    if source.escaped:
        # Escapes and joined literals shift what follows them: the text says what is meant.
        return line, column, f"{text} (near: {written.strip()})"
    return line, column, text


def _characters(line: str, byte_column: int) -> int:
    """A 1-based column in bytes as one in characters, kept inside the line."""
    before = line.encode("utf-8", "surrogatepass")[: max(byte_column - 1, 0)]
    return len(before.decode("utf-8", "ignore")) + 1


def condensed(diagnostics: Sequence[Diagnostic], limit: int = 20) -> str:
    """The errors as a compiler would print them, for a repair prompt: at most `limit`."""
    errors = [item for item in diagnostics if item.severity == "error"]
    lines = []
    for item in errors[:limit]:
        lines.append(f"{item.file}:{item.line}:{item.column}: error: {item.message}")
        lines.extend(
            f"{file}:{line}:{column}: note: {text}" for file, line, column, text in item.related[:4]
        )
    if len(errors) > limit:
        lines.append(f"... and {len(errors) - limit} more errors")
    return "\n".join(lines)
