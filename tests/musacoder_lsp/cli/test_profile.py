"""`musacoder profile`: what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musacoder_lsp.cli.main import main


def test_a_profile_needs_timing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ref.py", "cand.py"):
        (tmp_path / name).write_text("")
    files = [str(tmp_path / "ref.py"), str(tmp_path / "cand.py")]
    assert main(["profile", *files, "--no-timing", "--json"]) == 2
    printed = capsys.readouterr()
    assert "leave out --no-timing" in json.loads(printed.out)["error"]
    assert "leave out --no-timing" in printed.err


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ref.py").write_text("")
    files = [str(tmp_path / "ref.py"), str(tmp_path / "absent.py")]
    assert main(["profile", *files]) == 2
    assert "absent.py cannot be read" in capsys.readouterr().err
