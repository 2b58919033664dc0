"""`musacoder sites`: files that are not what a newcomer expects, and our own faults."""

from __future__ import annotations

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
