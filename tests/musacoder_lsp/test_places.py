"""Generated files: nothing of the user's is overwritten, nothing half-written stays."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from musacoder_lsp import places
from musacoder_lsp.places import CannotWrite, Place, generated_place, state_file, write_generated


@pytest.fixture(autouse=True)
def user_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_workspaces_own_folder_ignores_itself(tmp_path: Path) -> None:
    place = generated_place(tmp_path)
    assert place == Place(tmp_path / ".musacoder")
    assert (place.folder / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("folder", [None, Path("/")])
def test_no_folder_means_the_cache(folder: Path | None, tmp_path: Path) -> None:
    place = generated_place(folder)
    assert place.folder.is_relative_to(tmp_path / "cache") and place.note is not None


def test_a_link_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    """A cloned repository may ship one."""
    workspace, target = tmp_path / "w", tmp_path / "elsewhere"
    workspace.mkdir()
    target.mkdir()
    (workspace / ".musacoder").symlink_to(target)
    assert "symbolic link" in (generated_place(workspace).note or "")
    (workspace / ".musacoder").unlink()
    place = generated_place(workspace)
    (place.folder / "a").symlink_to(target)
    with pytest.raises(CannotWrite):
        write_generated(place, "a.py", "f", "x")
    assert list(target.iterdir()) == []


def test_a_read_only_workspace_means_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "write_text", refused)
    place = generated_place(tmp_path)
    assert place.note is not None and "read-only file system" in place.note


def test_the_same_text_is_the_same_file_and_an_edit_is_kept(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = write_generated(place, "/x/mo del.py", "module:Net", "one")
    assert first.parent.name == "mo_del" and first.name.startswith("module_Net_")
    assert write_generated(place, "/x/mo del.py", "module:Net", "one") == first
    first.write_text("one, edited by hand")
    again = write_generated(place, "/x/mo del.py", "module:Net", "one")
    assert again != first and first.read_text() == "one, edited by hand"
    assert stat.S_IMODE(first.stat().st_mode) == 0o644


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(places.os, "fsync", full)
    with pytest.raises(CannotWrite, match="disk is full"):
        write_generated(Place(tmp_path), None, "f", "text")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_state_is_never_in_the_workspace(tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "w").mkdir()
    link.symlink_to(tmp_path / "w")
    assert state_file(link) == state_file(tmp_path / "w") != state_file(None)
    assert not state_file(tmp_path / "w").is_relative_to(tmp_path / "w")
