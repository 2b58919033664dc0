"""Fixtures of the protocol tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = """import torch
import torch.nn.functional as F


# musacoder: x: f32[64, 64]
def act(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + 1


def plain(n: int) -> int:
    return n + 1


def bare(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x) * 2
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and cache of the user, away from the real ones."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def workspace(places: Path) -> Path:
    folder = places / "a workspace"
    folder.mkdir()
    (folder / "model.py").write_text(SOURCE)
    return folder
