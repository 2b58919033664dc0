"""`musacoder verify --like kernelbench`: what is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musacoder_lsp.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--tolerance", "0.01"), "--like"),
        (("--like", "kernelbench", "--trials", "0"), "--trials"),
        (("--like", "kernelbench", "--tolerance", "nan"), "--tolerance"),
        (("--like", "kernelbench", "--tolerance", "inf"), "--tolerance"),
        (("--like", "kernelbench", "--tolerance=-1e-3"), "--tolerance"),
    ],
)
def test_options_that_do_not_fit(
    arguments: tuple[str, ...], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "module.py"
    path.write_text("import torch\n")
    assert main(["verify", str(path), str(path), "--json", *arguments]) == 2
    captured = capsys.readouterr()
    assert word in json.loads(captured.out)["error"]
    assert captured.err.count("\n") == 1
