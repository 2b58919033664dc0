"""Settings and the choice of interpreter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from musacoder_lsp import interpreter
from musacoder_lsp.interpreter import NoInterpreter, find_interpreter
from musacoder_lsp.settings import Settings, parse


@pytest.mark.parametrize(
    "raw", [None, {}, {"musacoder": None}, {"musacoder": {}}, {"python": None}]
)
def test_nothing_set_means_the_defaults(raw: Any) -> None:
    assert parse(raw) == (Settings(), ())


def test_good_values_in_either_shape() -> None:
    values = {
        "maxTurns": 5.0,
        "stageTimeout": 10,
        "sandbox": False,
        "lenses": ["call"],
        "threads": 2,
    }
    expected = Settings(max_turns=5, stage_timeout=10.0, sandbox=False, lenses=("call",), threads=2)
    assert parse(values) == parse({"musacoder": values}) == (expected, ())


@pytest.mark.parametrize(
    "key, value",
    [
        ("python", 3),
        ("engine", "magic"),
        ("backend", ["cpu"]),
        ("policy", ""),
        ("stageTimeout", 0),
        ("stageTimeout", True),
        ("sandbox", "yes"),
        ("threads", 1.5),
        ("maxTurns", 0),
        ("lenses", "module"),
        ("lenses", ["module", 3]),
        ("engineOptions", []),
        ("samples", float("nan")),
        ("compileBaseline", 1),
    ],
)
def test_a_bad_value_is_named_and_replaced(key: str, value: Any) -> None:
    settings, warnings = parse({key: value, "maxTurns" if key != "maxTurns" else "samples": 2})
    assert len(warnings) == 1 and f"musacoder.{key} must" in warnings[0]
    assert settings == Settings(**{"max_turns" if key != "maxTurns" else "samples": 2})


@pytest.mark.parametrize("raw", [3, "text", [], {"musacoder": 3}])
def test_anything_else_is_refused_in_a_sentence(raw: Any) -> None:
    settings, warnings = parse(raw)
    assert settings == Settings() and len(warnings) == 1


def test_an_unknown_name_brings_the_nearest() -> None:
    assert parse({"maxTurn": 1})[1] == (
        "There is no setting musacoder.maxTurn. Did you mean musacoder.maxTurns?",
    )


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_order_of_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda _: None)
    folder = tmp_path / "sp ace"
    set_one = executable(folder / "own" / "python3")
    active = executable(tmp_path / "active" / "bin" / "python")
    local = executable(folder / ".venv" / "bin" / "python")
    on_path = executable(tmp_path / "bin" / "python3")
    environment = {"PATH": str(on_path.parent), "VIRTUAL_ENV": str(tmp_path / "active")}
    assert find_interpreter("own/python3", folder, environment).path == str(set_one)
    assert find_interpreter(None, folder, environment).path == str(active)
    del environment["VIRTUAL_ENV"]
    assert find_interpreter(None, folder, environment).path == str(local)
    assert find_interpreter(None, None, environment).path == str(on_path)
    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda _: object())
    assert find_interpreter(None, None, environment).origin == "the server's own environment"


def test_no_interpreter_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda _: None)
    for setting in (None, str(tmp_path / "gone"), os.devnull):
        with pytest.raises(NoInterpreter, match=r"musacoder\.python"):
            find_interpreter(setting, tmp_path, {"PATH": str(tmp_path)})
