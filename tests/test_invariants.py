"""The invariants of ARCHITECTURE.md that an import or a call can break."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LSP = ROOT / "musacoder_lsp"
INFERENCE = ROOT / "inference" / "musacoder_inference"
VERIFIER = ROOT / "verifier" / "musacoder_verifier"
RUNTIME = VERIFIER / "runtime"

HEAVY = {"torch", "vllm", "transformers"}
PROTOCOL = {"pygls", "lsprotocol"}


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports at any depth, type-checking blocks included."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno
            # What is imported may be a module too.
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def python_files(root: Path, *, without: Path | None = None) -> list[Path]:
    return [
        path
        for path in sorted(root.rglob("*.py"))
        if without is None or not path.is_relative_to(without)
    ]


def offences(files: list[Path], forbidden: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in files
        for name, line in imports(path)
        if name.split(".")[0] in forbidden
    ]


def test_inference_knows_neither_the_verifier_nor_the_server() -> None:
    forbidden = {"musacoder_verifier", "musacoder_runtime", "musacoder_lsp"} | PROTOCOL
    assert offences(python_files(INFERENCE), forbidden) == []


def test_the_verifier_knows_neither_models_nor_the_server() -> None:
    forbidden = {"musacoder_inference", "musacoder_lsp"} | PROTOCOL
    assert offences(python_files(VERIFIER), forbidden) == []


def started_by_path(path: Path) -> bool:
    """A program for an interpreter that has torch, which is another one than ours."""
    return path.name.endswith("_child.py")


def test_only_the_runtime_imports_torch() -> None:
    files = python_files(LSP) + python_files(INFERENCE) + python_files(VERIFIER, without=RUNTIME)
    assert offences([path for path in files if not started_by_path(path)], HEAVY) == []


def test_nobody_imports_a_program_for_another_interpreter() -> None:
    files = python_files(LSP) + python_files(INFERENCE) + python_files(VERIFIER, without=RUNTIME)
    programs = {path.stem for path in files if started_by_path(path)}
    found = []
    for path in files:
        for name, line in imports(path):
            if programs & set(name.split(".")):
                found.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert programs
    assert found == []


def test_the_runtime_imports_the_standard_library_and_torch_alone() -> None:
    allowed = set(sys.stdlib_module_names) | {"torch", "torch_musa", "musacoder_runtime"}
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files(RUNTIME)
        for name, line in imports(path)
        if name.split(".")[0] not in allowed
    ]
    assert found == []


def test_the_runtime_is_written_for_python_3_9() -> None:
    for path in python_files(RUNTIME):
        ast.parse(path.read_bytes(), str(path), feature_version=(3, 9))
        future = [name for name, _ in imports(path) if name == "__future__"]
        annotated = "->" in path.read_text() or ": " in path.read_text()
        # The entry must be readable for interpreters that do not know the future import.
        exempt = path.name in ("__init__.py", "zygote.py")
        assert future or not annotated or exempt, path


def test_only_the_server_and_its_features_know_lsp() -> None:
    files = [
        path
        for path in python_files(LSP)
        if path != LSP / "server.py" and not path.is_relative_to(LSP / "features")
    ]
    assert offences(files, PROTOCOL) == []


def test_no_command_goes_through_a_shell() -> None:
    found = []
    for path in python_files(LSP) + python_files(INFERENCE) + python_files(VERIFIER):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            shell = any(
                keyword.arg == "shell" and ast.unparse(keyword.value) != "False"
                for keyword in node.keywords
            )
            if shell or name in {"os.system", "os.popen", "asyncio.create_subprocess_shell"}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} calls {name}")
    assert found == []


@pytest.mark.parametrize("module", ["musacoder_lsp.server", "musacoder_lsp.cli.main"])
def test_starting_loads_nothing_heavy(module: str) -> None:
    """Transitive, so that a heavy import behind a light one is seen too."""
    heavy = sorted(HEAVY | {"numpy", "openai"})
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_rooms_stay_small() -> None:
    files = [*python_files(LSP), *python_files(INFERENCE), *python_files(VERIFIER)]
    large = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if (lines := len(path.read_bytes().splitlines())) > 450
    }
    assert large == {}
