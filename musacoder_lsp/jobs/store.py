"""Results of one workspace, kept in the user's state directory, safe for several windows."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from musacoder_verifier.reference import Reference, SourceLine

_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    path TEXT NOT NULL, site TEXT NOT NULL, backend TEXT NOT NULL, fingerprint TEXT NOT NULL,
    identity TEXT NOT NULL, reference TEXT NOT NULL, trajectory TEXT NOT NULL, saved REAL NOT NULL,
    PRIMARY KEY (path, site, backend, fingerprint));
CREATE TABLE IF NOT EXISTS generated (
    path TEXT PRIMARY KEY, digest TEXT NOT NULL, source_path TEXT NOT NULL, site TEXT NOT NULL,
    backend TEXT NOT NULL, fingerprint TEXT NOT NULL, saved REAL NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, site TEXT NOT NULL, kind TEXT NOT NULL,
    cause TEXT NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL, updated REAL NOT NULL);
"""
# How long another window may hold the file before we give up, in seconds.
_BUSY = 5.0
# Results per Site that survive: enough to undo some edits and find the figures again.
_KEPT = 8


@dataclass(frozen=True, slots=True)
class StoredResult:
    """`fingerprint` is the Site's content when it was verified, `identity` everything else that
    the figures depend on: Reference with its imports, interpreter, engine, verifier version."""

    path: str
    site: str
    backend: str
    fingerprint: str
    identity: str
    reference: Reference
    trajectory: dict[str, Any]
    saved: float


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file that this user's server wrote; `digest` is the SHA-256 of what was last verified."""

    path: str
    digest: str
    source_path: str
    site: str
    backend: str
    fingerprint: str


class Store:
    """Synchronous; used from one thread of its own. `note` says in one sentence that results will
    not survive, where the file could not be used."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.note: str | None = None
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                return _connect(str(self.file))
            except sqlite3.DatabaseError as problem:
                if isinstance(problem, sqlite3.OperationalError):
                    raise
                # Not a database: put it aside rather than delete what may be someone's.
                aside = self.file.with_suffix(f".broken-{int(time.time())}")
                self.file.replace(aside)
                self.note = f"The store {self.file} was damaged and has been moved to {aside}."
                return _connect(str(self.file))
        except (OSError, sqlite3.Error) as problem:
            self.note = (
                f"Results will not survive this session: {self.file} cannot be used ({problem})."
            )
            return _connect(":memory:")

    def close(self) -> None:
        self._connection.close()

    def changes(self) -> int:
        """A number that differs after another window has written."""
        row = self._connection.execute("PRAGMA data_version").fetchone()
        return int(row[0])

    def save_result(self, result: StoredResult) -> None:
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    result.path,
                    result.site,
                    result.backend,
                    result.fingerprint,
                    result.identity,
                    json.dumps(_reference_json(result.reference)),
                    json.dumps(result.trajectory),
                    result.saved,
                ),
            )
            connection.execute(
                "DELETE FROM results WHERE path = ? AND site = ? AND backend = ? AND saved < ("
                " SELECT min(saved) FROM (SELECT saved FROM results"
                " WHERE path = ? AND site = ? AND backend = ? ORDER BY saved DESC LIMIT ?))",
                (*(result.path, result.site, result.backend) * 2, _KEPT),
            )

    def results(self, path: str, backend: str) -> list[StoredResult]:
        """All results of a file, the newest first; unreadable rows are left out."""
        rows = self._connection.execute(
            "SELECT path, site, backend, fingerprint, identity, reference, trajectory, saved"
            " FROM results WHERE path = ? AND backend = ? ORDER BY saved DESC",
            (path, backend),
        )
        found = []
        for row in rows:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                reference, trajectory = _reference_from(json.loads(row[5])), json.loads(row[6])
                found.append(StoredResult(*row[:5], reference, trajectory, row[7]))  # type: ignore[call-arg]
        return found

    def save_generated(self, file: GeneratedFile) -> None:
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO generated VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    file.path,
                    file.digest,
                    file.source_path,
                    file.site,
                    file.backend,
                    file.fingerprint,
                    time.time(),
                ),
            )

    def generated(self, path: str) -> GeneratedFile | None:
        row = self._connection.execute(
            "SELECT path, digest, source_path, site, backend, fingerprint FROM generated"
            " WHERE path = ?",
            (path,),
        ).fetchone()
        return GeneratedFile(*row) if row else None

    def save_job(
        self, job_id: str, path: str, site: str, kind: str, cause: str, state: str, detail: str
    ) -> None:
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (job_id, path, site, kind, cause, state, detail, time.time()),
            )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction. Raises sqlite3.Error; nothing is half-written then."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _connect(name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(name, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _reference_json(reference: Reference) -> dict[str, Any]:
    body = {item.name: getattr(reference, item.name) for item in fields(Reference)}
    body["lines"] = [[line.path, line.line] if line else None for line in reference.lines]
    return body


def _reference_from(body: dict[str, Any]) -> Reference:
    known = {item.name for item in fields(Reference)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in body.items()
        if name in known
    }
    values["lines"] = tuple(SourceLine(*line) if line else None for line in body["lines"])
    return Reference(**values)
