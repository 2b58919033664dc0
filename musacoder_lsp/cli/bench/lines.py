"""Measurements as JSON lines: appended one by one, so that an interrupted run goes on.

Each line has `kind`, the `verifier` that made it, `device` and `date`; the rest belongs to the
kind. A line of another version of the verifier is left alone and not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from musacoder_verifier.content_key import verifier_version

from musacoder_lsp.cli.options import SCHEMA_VERSION, Unusable

Line = Mapping[str, Any]


def read(paths: Iterable[Path], kind: str, *, version: str | None = None) -> Iterator[Line]:
    """The lines of one kind that this version of the verifier (or `version`) made. A line that was
    cut off when its writer died is passed over. Raises Unusable for a file that cannot be read."""
    wanted = version or verifier_version()
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise Unusable(f"{path} cannot be read: {error.strerror}.") from error
        for row in text.splitlines():
            try:
                line = json.loads(row)
            except ValueError:
                continue
            named = isinstance(line, dict) and (line.get("kind"), line.get("verifier"))
            if named == (kind, wanted):
                yield line


def append(path: Path | None, kind: str, device: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Adds one line, and returns it. Raises Unusable where the file cannot be written."""
    line = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "verifier": verifier_version(),
        "device": device,
        "date": date.today().isoformat(),
        **body,
    }
    if path is not None:
        try:
            damaged = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
            with path.open("a", encoding="utf-8") as file:
                file.write("\n" if damaged else "")
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise Unusable(f"{path} cannot be written: {error.strerror}.") from error
    return line
