"""References that import modules of the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from musacoder_verifier.reference import Reference

from musacoder_lsp.sites import Unbuildable, build_reference, find_sites

USER = """import torch
{imports}

# musacoder: x: f32[3]
def f(x: torch.Tensor):
    return torch.relu(helper(x))
"""


def project(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def built(path: Path, root: Path, buffers: dict[Path, str] | None = None) -> Reference:
    def read(file: Path) -> str | None:
        if buffers and file in buffers:
            return buffers[file]
        return file.read_text() if file.is_file() else None

    text = path.read_text()
    result = build_reference(find_sites(text)[-1], text, str(path), roots=[root], read=read)
    assert isinstance(result, Reference), result
    return result


def names(reference: Reference, root: Path) -> list[str]:
    return [
        Path(entry.rpartition(":")[0]).relative_to(root).as_posix() for entry in reference.imported
    ]


@pytest.mark.parametrize(
    "where, imports, absolute, found",
    [
        ("user.py", "from helpers import helper", "from helpers import helper", ["helpers.py"]),
        (
            "pkg/sub/user.py",
            "from ..helpers import helper",
            "from pkg.helpers import helper",
            ["pkg/__init__.py", "pkg/helpers.py"],
        ),
        (
            "pkg/user.py",
            "from . import helpers\nhelper = helpers.helper",
            "from pkg import helpers",
            ["pkg/__init__.py", "pkg/helpers.py"],
        ),
        (
            "pkg/user.py",
            "from .helpers import (\n    helper,\n)",
            "from pkg.helpers import (",
            ["pkg/__init__.py", "pkg/helpers.py"],
        ),
        (
            # A namespace package: the path below the workspace's folder.
            "space/user.py",
            "from .helpers import helper",
            "from space.helpers import helper",
            ["space/helpers.py"],
        ),
        (
            "user.py",
            "from lib.helpers import helper",
            "from lib.helpers import helper",
            ["src/lib/__init__.py", "src/lib/helpers.py"],
        ),
        (
            # Inside the function.
            "pkg/user.py",
            "def helper(x):\n    from .helpers import helper as inner\n    return inner(x)",
            "    from pkg.helpers import helper as inner",
            ["pkg/__init__.py", "pkg/helpers.py"],
        ),
    ],
)
def test_imports_are_absolute_and_digested(
    tmp_path: Path, where: str, imports: str, absolute: str, found: list[str]
) -> None:
    helper = "def helper(x):\n    return x\n"
    project(
        tmp_path,
        {
            "helpers.py": helper,
            "pkg/__init__.py": "",
            "pkg/sub/__init__.py": "",
            "pkg/helpers.py": helper,
            "space/helpers.py": helper,
            "src/lib/__init__.py": "",
            "src/lib/helpers.py": helper,
            where: USER.format(imports=imports),
        },
    )
    reference = built(tmp_path / where, tmp_path)
    assert absolute in reference.source
    assert names(reference, tmp_path) == found
    assert reference.import_roots
    assert reference.notes == ()


def test_digests_follow_imports_of_imports(tmp_path: Path) -> None:
    project(
        tmp_path,
        {
            "user.py": USER.format(imports="from helpers import helper"),
            "helpers.py": "from deep import K\ndef helper(x):\n    return x * K\n",
            "deep.py": "import helpers\nK = 1\n",
        },
    )
    before = built(tmp_path / "user.py", tmp_path)
    assert names(before, tmp_path) == ["deep.py", "helpers.py"]
    (tmp_path / "deep.py").write_text("K = 2\n")
    assert built(tmp_path / "user.py", tmp_path).key != before.key


def test_an_unsaved_import_is_named_and_the_saved_one_counts(tmp_path: Path) -> None:
    project(
        tmp_path,
        {
            "user.py": USER.format(imports="from helpers import helper"),
            "helpers.py": "def helper(x):\n    return x\n",
        },
    )
    saved = built(tmp_path / "user.py", tmp_path)
    buffers = {tmp_path / "helpers.py": "def helper(x):\n    return x + 1\n"}
    unsaved = built(tmp_path / "user.py", tmp_path, buffers)
    assert unsaved.notes == ("helpers.py has unsaved changes; the saved version is used.",)
    assert unsaved.key == saved.key


def test_only_what_is_needed_is_imported(tmp_path: Path) -> None:
    project(
        tmp_path,
        {
            "user.py": USER.format(imports="from helpers import helper\nimport wandb, heavy"),
            "helpers.py": "def helper(x):\n    return x\n",
            "heavy.py": "raise SystemExit\n",
        },
    )
    reference = built(tmp_path / "user.py", tmp_path)
    assert "heavy" not in reference.source
    assert names(reference, tmp_path) == ["helpers.py"]


def test_a_relative_import_out_of_every_package(tmp_path: Path) -> None:
    project(tmp_path, {"user.py": USER.format(imports="from ..helpers import helper")})
    text = (tmp_path / "user.py").read_text()
    result = build_reference(find_sites(text)[-1], text, str(tmp_path / "user.py"))
    assert isinstance(result, Unbuildable)
    assert "relative import of `..helpers`" in result.reason


def test_a_whole_file_keeps_its_lines(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom .helpers import helper; from . import more\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return helper(x).relu()\n"
        "def get_inputs():\n    return [torch.ones(3)]\n"
    )
    project(tmp_path, {"pkg/__init__.py": "", "pkg/helpers.py": "", "pkg/user.py": text})
    reference = built(tmp_path / "pkg/user.py", tmp_path)
    lines = reference.source.split("\n")
    assert lines[1] == "from pkg.helpers import helper; from pkg import more"
    assert [line for line in reference.lines[:7] if line] == list(reference.lines[:7])
    assert [line.line for line in reference.lines[:7] if line] == list(range(7))


def test_train_mode_and_reserved_names() -> None:
    code = (
        "import torch\n# musacoder: x: f32[3]\n# musacoder: mode: {}\n"
        "def f(x):\n    return torch.exp(x)\n"
    )
    for mode, training in (("train", True), ("eval", False)):
        text = code.format(mode)
        reference = build_reference(find_sites(text)[0], text, None)
        assert isinstance(reference, Reference)
        assert reference.training is training
    text = (
        "import torch\nclass Model:\n    K = 2\n# musacoder: x: f32[3]\n"
        "def f(x):\n    return torch.exp(x) * Model.K\n"
    )
    result = build_reference(find_sites(text)[0], text, None)
    assert isinstance(result, Unbuildable)
    assert "another `Model`" in result.reason


def test_a_closure_is_refused_by_name() -> None:
    text = (
        "import torch\ndef make(n):\n    class Net(torch.nn.Module):\n"
        "        # musacoder: x: f32[3]\n        def forward(self, x):\n"
        "            return torch.exp(x) * n\n    return Net\n"
    )
    result = build_reference(find_sites(text)[0], text, None)
    assert isinstance(result, Unbuildable)
    assert "uses `n` of the function around it" in result.reason


def test_a_site_that_moved_is_not_built() -> None:
    text = "import torch\n# musacoder: x: f32[3]\ndef f(x):\n    return torch.exp(x)\n"
    (site,) = find_sites(text)
    result = build_reference(site, "#\n" + text, None)
    assert isinstance(result, Unbuildable)
    assert "no longer where it was" in result.reason
