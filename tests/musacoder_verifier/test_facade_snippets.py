"""The facade takes nothing that the real headers refuse, and most of what they take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from musacoder_verifier.build_request import BuildRequest, SourceText
from musacoder_verifier.lanes import fast
from musacoder_verifier.lanes.prepare import Prepared, abi_flag, facade_includes
from musacoder_verifier.toolchain import Compiler
from musacoder_verifier.worker import WorkerInfo

SNIPPETS = Path(__file__).parent / "data" / "host_snippets.txt"
PARAMETERS = (
    "at::Tensor x, at::Tensor y, c10::optional<at::Tensor> bias, int n, std::vector<int64_t> st, "
    "std::vector<at::Tensor> vec, float* p, at::Half h, float v"
)
FLAGS = ["-w", "-fmax-errors=0", "-fdiagnostics-color=never", "-fno-diagnostics-show-caret"]


def read() -> list[tuple[bool, str]]:
    lines = [line for line in SNIPPETS.read_text().splitlines() if line and line[0] != "#"]
    parts = (line.partition(" ") for line in lines)
    return [(word == "yes", snippet) for word, _, snippet in parts]


def unit(snippets: list[str]) -> str:
    """Each snippet as a function on a line of its own."""
    lines = []
    for number, snippet in enumerate(snippets, start=1):
        body = snippet if snippet.endswith(";") else f"(void)({snippet});"
        lines.append(f'#line {number} "snippets"\nvoid s{number}({PARAMETERS}) {{ {body} }}')
    return "\n".join(lines) + "\n"


def refused(arguments: list[str], snippets: list[str], folder: Path) -> set[str]:
    """The snippets for which the compiler reports an error, in them or in what they instantiate."""
    done = subprocess.run(arguments, cwd=folder, capture_output=True, check=False)
    found: set[int] = set()
    instantiating = 0  # the snippet that instantiates the template of the error to come
    elsewhere: int | None = None  # whose the last error is, if no note below names a snippet
    for line in [*done.stderr.decode("utf-8", "replace").splitlines(), "end:0:0: error: "]:
        required = re.match(r"snippets:(\d+):\d+:\s+required from here", line)
        expanded = re.match(r"snippets:(\d+):\d+: note: in expansion of macro", line)
        error = re.match(r"(\S+?):(\d+):\d+: (?:fatal )?error: ", line)
        if required:
            instantiating = int(required[1])
        elif expanded and elsewhere is not None:
            found.add(int(expanded[1]))
            elsewhere = None
        elif error:
            if elsewhere is not None:
                found.add(elsewhere)
            inside = error[1] == "snippets"
            elsewhere = None if inside else instantiating
            if inside:
                found.add(int(error[2]))
    assert 0 not in found, done.stderr[-3000:]
    return {snippets[number - 1] for number in found}


@pytest.mark.asyncio(loop_scope="session")
async def test_the_facade_is_not_kinder_than_the_real_headers(
    prepared: Prepared, compiler: Compiler, native_flags: tuple[str, ...], tmp_path: Path
):
    snippets = read()
    texts = [snippet for _, snippet in snippets]
    request = BuildRequest("x", (SourceText("cpp", unit(texts)),))
    fast.write_sources(request, tmp_path, prepared.torch_include)
    arguments = [
        compiler.path, *native_flags, *FLAGS, "-fsyntax-only", "-include", str(prepared.prefix),
        f"-I{tmp_path}", *facade_includes(prepared.folder), "main.cpp",
    ]  # fmt: skip
    no = refused(arguments, texts, tmp_path)
    kinder = [snippet for real, snippet in snippets if not real and snippet not in no]
    assert kinder == []
    lacking = [snippet for real, snippet in snippets if real and snippet in no]
    taken = sum(real for real, _ in snippets)
    # Each of these goes to the stock lane: a few words more are fine, whole families are not.
    assert len(lacking) <= taken * 0.05, lacking


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_the_recorded_answers_are_those_of_the_real_headers(
    worker_info: WorkerInfo, compiler: Compiler, native_flags: tuple[str, ...], tmp_path: Path
):
    if not worker_info.torch_version.startswith("2.13") or compiler.version[0] != 12:
        pytest.skip("recorded with torch 2.13 and gcc 12")
    snippets = read()
    texts = [snippet for _, snippet in snippets]
    (tmp_path / "main.cpp").write_text("#include <torch/extension.h>\n" + unit(texts))
    folders = [*worker_info.torch_include_dirs, *worker_info.python_include_dirs]
    arguments = [
        compiler.path, *native_flags, *FLAGS, "-O0", "-fsyntax-only", abi_flag(worker_info),
        "-DTORCH_EXTENSION_NAME=x", *(f"-isystem{folder}" for folder in folders), "main.cpp",
    ]  # fmt: skip
    no = refused(arguments, texts, tmp_path)
    wrong = [f"{text} (recorded: {real})" for real, text in snippets if real != (text not in no)]
    assert "\n".join(wrong) == ""
