"""In device sources, too, the facade takes nothing that the real headers refuse, and most else."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from musacoder_verifier.build_request import BuildRequest, SourceText
from musacoder_verifier.lanes import device, nvcc_steps
from musacoder_verifier.lanes.prepare import Prepared
from musacoder_verifier.toolchain import Compiler, cuda_toolkit

SNIPPETS = Path(__file__).parent / "data" / "device_snippets.txt"
FORMS = {
    "device": "__global__ void s{number}(float* f, double* d, c10::Half* h2, c10::BFloat16* b2, "
    "c10::Half h, c10::BFloat16 b, float v0, int n) {{ {body} }}",
    "bare": "void s{number}(torch::Tensor x, torch::Tensor y, torch::Tensor bias, int n, "
    "std::vector<int64_t> st, std::vector<torch::Tensor> vec, float* p, std::vector<int64_t> pd) "
    "{{ {body} }}",
}
FORMS["included"] = FORMS["bare"]
HEADERS = {"included": ("ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h")}


def read(kind: str) -> list[tuple[bool, str]]:
    lines = (line.split(" ", 2) for line in SNIPPETS.read_text().splitlines() if line[0] != "#")
    return [(answer == "yes", snippet) for answer, where, snippet in lines if where == kind]


def unit(kind: str, snippets: Sequence[str]) -> str:
    """Each snippet as a function on a line of its own."""
    lines = [f"#include <{header}>" for header in HEADERS.get(kind, ())]
    for number, snippet in enumerate(snippets, start=1):
        body = snippet if snippet.endswith((";", "}")) else f"{snippet};"
        lines.append(f'#line {number} "snippets"\n{FORMS[kind].format(number=number, body=body)}')
    return "\n".join(lines) + "\n"


def refused(command: list[str], snippets: Sequence[str], folder: Path) -> set[str]:
    """Snippets for which nvcc's front end reports an error, in them or in what they instantiate."""
    dry = subprocess.run(
        [*command, "-Xcudafe=--error_limit=100000", *nvcc_steps.DRY_RUN],
        cwd=folder, capture_output=True, check=True, text=True,
    )  # fmt: skip
    script = nvcc_steps.script(dry.stderr, "0123abcd")
    assert script is not None, dry.stderr
    branch = re.search(r"^\( (.*) \)\nhost=", script, re.M)
    assert branch is not None
    exports = [line for line in script.splitlines() if line.startswith(("export", "printf"))]
    done = subprocess.run(
        ["/bin/sh", "-c", "\n".join([*exports, branch[1]])],
        cwd=folder, capture_output=True, check=False, text=True,
    )  # fmt: skip
    output = done.stdout + done.stderr
    found = re.findall(r"^snippets\((\d+)\): (?:catastrophic )?error", output, re.M)
    found += re.findall(r"at line (\d+) of snippets", output)
    assert found or done.returncode == 0, f"{shlex.join(command)}\n{output[-3000:]}"
    return {snippets[int(number) - 1] for number in found}


@pytest.mark.skipif(cuda_toolkit() is None, reason="nvcc is not installed here")
@pytest.mark.parametrize(
    ("kind", "lean"),
    [("device", True), ("bare", False), ("included", True)],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_the_facade_is_not_kinder_than_the_real_headers(
    prepared: Prepared,
    compiler: Compiler,
    native_flags: tuple[str, ...],
    tmp_path: Path,
    kind: str,
    lean: bool,
):
    toolkit = cuda_toolkit()
    assert toolkit is not None
    nvcc = device.DeviceCompiler(toolkit, compiler, ("-arch=sm_90",), (), None)
    recorded = read(kind)
    group = [item for item in recorded if device.is_lean(item[1])] if lean else recorded
    assert len(group) > len(recorded) / 2
    texts = [snippet for _, snippet in group]
    request = BuildRequest("x", (SourceText("cuda", unit(kind, texts)),))
    device.write_unit(request, tmp_path, prepared.torch_include)
    written = (tmp_path / device.UNIT).read_text()
    assert ("#define MC_DEVICE_UNIT" in written) == (lean or kind == "device")
    command = device.arguments(nvcc, request, prepared, native_flags, tmp_path, device.OBJECT)
    no = refused(command, texts, tmp_path)
    assert [snippet for real, snippet in group if not real and snippet not in no] == []
    lacking = [snippet for real, snippet in group if real and snippet in no]
    taken = sum(real for real, _ in group)
    # Each of these goes to the stock lane: a few are fine, whole families are not.
    assert len(lacking) <= taken * 0.07, lacking
