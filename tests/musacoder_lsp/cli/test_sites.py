"""`musacoder sites`: files that are not what a newcomer expects, and our own faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from musacoder_lsp.cli import sites
from musacoder_lsp.cli.main import main

TENSOR_CODE = b"import torch\ndef f(x):\n    return torch.relu(x) * 2\n"


@pytest.mark.parametrize(
    ("coding", "says"),
    [
        (b"# coding: klingon\n", "unknown encoding klingon"),
        (b"# coding: hex\n", "unknown encoding hex"),
        (b"# caf\xe9\n", "not valid utf-8"),
        (b"# coding: latin-1\n# caf\xe9\n", ""),
    ],
)
def test_what_is_wrong_with_an_encoding(
    coding: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "code.py"
    path.write_bytes(coding + TENSOR_CODE)
    assert main(["sites", str(path)]) == 0
    captured = capsys.readouterr()
    assert "relu" in captured.out
    assert says in captured.err
    assert captured.err.count("\n") == bool(says)


def test_a_fault_of_our_own_is_no_negative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(sites, "find_sites", broken)
    path = tmp_path / "code.py"
    path.write_bytes(TENSOR_CODE)
    assert main(["sites", str(path)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("musacoder: a fault of musacoder itself (RuntimeError: two)")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_name_that_the_terminal_cannot_show(encoding: str, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9 \xc3\xa9.py"
    Path(os.fsdecode(path)).write_bytes(TENSOR_CODE)
    ran = subprocess.run(
        [sys.executable, "-m", "musacoder_lsp.cli.main", "sites", os.fsdecode(path)],
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": encoding},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert rb"caf\udce9" in ran.stdout
