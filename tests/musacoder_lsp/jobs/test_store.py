"""The store: several windows, damage, no room, and the way through JSON."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from lsp_fakes import verdict
from musacoder_verifier.candidate import Candidate, Provenance
from musacoder_verifier.reference import Reference, SourceLine
from musacoder_verifier.verdict import Failure

from musacoder_lsp.assistant import Trajectory, Turn
from musacoder_lsp.jobs import trajectory_json
from musacoder_lsp.jobs.results import KnownResult, ResultBook
from musacoder_lsp.jobs.store import GeneratedFile, Store, StoredResult

REFERENCE = Reference("class Model: ...\n", "/a.py", (SourceLine("/a.py", 3), None), ("/w",), True)


def trajectory() -> Trajectory:
    failed = Turn(
        1, Candidate("one", "/k1.py", Provenance("openai", "m")), verdict("compile_error")
    )
    good = Turn(2, Candidate("two", None, Provenance("openai", "m", parent="p")), verdict())
    return Trajectory((failed, good), good, None, "openai", "m", "MusaCoder", True)


def stored(fingerprint: str = "f", saved: float = 1.0) -> StoredResult:
    body = trajectory_json.to_json(trajectory())
    return StoredResult("/a.py", "function:f", "cpu", fingerprint, "i", REFERENCE, body, saved)


def test_a_trajectory_survives_json() -> None:
    for given in (
        trajectory(),
        Trajectory(
            (), None, "no", "synth", None, failure=Failure("reference_error", "reference", "x")
        ),
    ):
        text = json.dumps(trajectory_json.to_json(given), allow_nan=False)
        assert trajectory_json.from_json(json.loads(text)) == given
    with pytest.raises(ValueError):
        trajectory_json.from_json({"turns": [{"turn": 1}], "best": 0})


def test_two_windows_see_each_other(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "w" / "s.db"), Store(tmp_path / "w" / "s.db")
    before = two.changes()
    one.save_result(stored())
    assert two.changes() != before
    assert two.results("/a.py", "cpu") == [stored()]
    assert two.results("/a.py", "cuda") == [] and one.note is None
    file = GeneratedFile("/k.py", "d", "/a.py", "function:f", "cpu", "f")
    two.save_generated(file)
    assert one.generated("/k.py") == file and one.generated("/other.py") is None


def test_old_results_make_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    for number in range(20):
        store.save_result(stored(str(number), float(number)))
    kept = [row.fingerprint for row in store.results("/a.py", "cpu")]
    assert kept == [str(number) for number in range(19, 11, -1)]


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    file.write_bytes(b"this is no database, but somebody may want it" * 100)
    store = Store(file)
    assert store.note is not None and "damaged" in store.note
    store.save_result(stored())
    assert [path.suffix[:8] for path in tmp_path.glob("s.broken-*")] == [".broken-"]


def test_an_unusable_place_is_said_and_memory_serves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "s.db")
    assert store.note is not None and "will not survive" in store.note
    store.save_result(stored())
    assert store.results("/a.py", "cpu") == [stored()]


async def test_a_result_that_cannot_be_stored_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    notes: list[str] = []
    book = ResultBook(notes.append)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "save_result", full)
    known = KnownResult("function:f", "cpu", "f", "i", REFERENCE, trajectory(), 1.0)
    for _ in range(2):
        await book.save(None, "/a.py", known)
    await book.load(None, "/a.py", "cpu")
    assert book.find("/a.py", "function:f", "f") == known
    assert len(notes) == 1 and "disk is full" in notes[0]
    await book.close()


async def test_the_exact_content_comes_before_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book = ResultBook(lambda _: None)
    for number, fingerprint in enumerate(("old", "new")):
        await book.save(
            None,
            "/a.py",
            KnownResult("s", "cpu", fingerprint, "i", REFERENCE, trajectory(), float(number)),
        )
    await book.load(None, "/a.py", "cpu")

    def found(fingerprint: str) -> str | None:
        result = book.find("/a.py", "s", fingerprint)
        return result.fingerprint if result else None

    assert (found("old"), found("new"), found("other")) == ("old", "new", "new")
    await book.close()
