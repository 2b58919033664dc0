"""`musacoder doctor`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from musacoder_lsp.cli import doctor


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["doctor", *arguments])
    code: int = parsed.run(parsed)
    return code


def test_a_machine_that_can_verify(capsys: pytest.CaptureFixture[str]):
    assert run("--python", sys.executable, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert report["backends"]["cpu"] is True and "cuda" in report["backends"]
    found = {check["name"]: check["state"] for check in report["checks"]}
    assert found["C++ compiler"] == found["torch"] == found["Python.h"] == "found"
    assert {"NVIDIA GPU", "CUDA toolkit", "MUSA toolkit"} <= found.keys()


def test_without_compiler_and_torch_each_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert run("--python", "/nowhere/python", "--json") == 2
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["C++ compiler"]["state"] == checks["torch"]["state"] == "missing"
    assert "install one: " in checks["C++ compiler"]["detail"]
    assert "/nowhere/python" in checks["torch"]["detail"]
