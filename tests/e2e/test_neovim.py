"""The main job in a real Neovim 0.11."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("neovim_loop.lua")
EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.e2e


def test_from_the_lens_to_a_verified_kernel(
    tmp_path: Path, cache_environment: dict[str, str]
) -> None:
    source = EXAMPLES / "rms_norm_silu.py"
    file = tmp_path / "space in name" / source.name
    file.parent.mkdir()
    shutil.copy(source, file)
    nvim = Path(sys.executable).with_name("nvim")
    server = [sys.executable, "-m", "musacoder_lsp.cli.lsp"]
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    environment = {**os.environ, **cache_environment, **state}
    argv = [nvim, "--headless", "-u", "NONE", "-l", SCRIPT, file, "120", *server]
    done = subprocess.run(
        [str(part) for part in argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ok"], report
    assert "job" in report["answer"], report
    assert "vs eager" in report["result"] or "correct, slower" in report["result"], report
    assert "no model" in report["hover"], report
    assert report["untouched"] and report["encoding"] == "utf-8", report
    assert (file.parent / ".musacoder").is_dir()
