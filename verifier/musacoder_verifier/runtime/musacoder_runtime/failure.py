"""An exception as data: type, message, frames, text; so that the user's own line can be named."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from typing import Any

_RUNTIME = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMES = 100
_BARE_FRAMES = 12
_TEXT = 16_000


def describe(error: BaseException) -> dict[str, Any]:
    """`{"type", "message", "frames": [{"file", "line", "function", "text"}], "traceback"}`.

    Lines are 1-based, innermost frame last; our own frames at the outer end are left out. A
    SyntaxError ends with a frame for the line it speaks of, and has `"column"` (1-based) there.
    A SystemExit carries its `"code"`.
    """
    try:
        return _describe(error)
    except BaseException as second:  # a hostile __str__, or no memory left for the report
        kind = type(error).__name__
        both = _bare_frames(error) + _bare_frames(second)
        return {
            "type": kind,
            "message": f"{kind}, whose report failed with {type(second).__name__}",
            "frames": [],
            "traceback": "\n".join(f"{file}:{line} in {name}" for file, line, name in both),
        }


def _describe(error: BaseException) -> dict[str, Any]:
    stack = _theirs(traceback.extract_tb(error.__traceback__))
    frames: list[dict[str, Any]] = [
        {"file": f.filename, "line": f.lineno or 0, "function": f.name, "text": f.line or ""}
        for f in stack[-_FRAMES:]
    ]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append(
            {
                "file": error.filename,
                "line": error.lineno,
                "column": error.offset or 1,
                "function": "<module>",
                "text": (error.text or "").strip(),
            }
        )
        message = error.msg
    else:
        message = str(error)
    report: dict[str, Any] = {
        "type": type(error).__name__,
        "message": message[:_TEXT],
        "frames": frames,
        "traceback": _text(error, stack),
    }
    if isinstance(error, SystemExit):
        code = error.code
        report["code"] = code if isinstance(code, int) or code is None else str(code)
    return report


def _bare_frames(error: BaseException) -> list[tuple[str, int, str]]:
    """The innermost frames without their text: reading sources may be what fails."""
    frames: list[tuple[str, int, str]] = []
    link = error.__traceback__
    while link is not None:
        code = link.tb_frame.f_code
        frames.append((code.co_filename, link.tb_lineno, code.co_name))
        link = link.tb_next
    return frames[-_BARE_FRAMES:]


def _theirs(stack: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    frames = list(stack)
    while frames and _is_ours(frames[0].filename):
        frames.pop(0)
    return frames


def _is_ours(file: str) -> bool:
    return file.startswith((_RUNTIME, "<frozen importlib"))


def _text(error: BaseException, stack: list[traceback.FrameSummary]) -> str:
    whole = traceback.TracebackException.from_exception(error, limit=-_FRAMES)
    whole.stack = traceback.StackSummary.from_list(stack[-_FRAMES:])
    text = "".join(whole.format())
    if len(text) > _TEXT:
        text = text[: _TEXT // 4] + "\n[...]\n" + text[-_TEXT * 3 // 4 :]
    return text
