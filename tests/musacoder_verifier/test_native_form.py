"""The native form: its description, what NVRTC makes of it, and how it is called."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from compiled import load_in_process
from musacoder_runtime.native_form import Function, Launch, described
from musacoder_verifier import diagnostics
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.build_request import Artefact, BuildRequest, SourceText
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.lanes import native, symbols
from musacoder_verifier.lanes.device import DeviceCompiler
from musacoder_verifier.lanes.prepare import Prepared
from musacoder_verifier.stages.collect import Collected, collect
from musacoder_verifier.stages.compile import CompileOutcome, compile_requests
from musacoder_verifier.toolchain import Compiler, cuda_toolkit
from musacoder_verifier.worker import Worker
from native_candidates import CANDIDATE, REFERENCE

_TOOLKIT = cuda_toolkit()


def _device(host: Compiler) -> DeviceCompiler | None:
    if _TOOLKIT is None:
        return None
    flags = backend("cuda").device_flags
    return DeviceCompiler(_TOOLKIT, host, flags, (), None, _TOOLKIT.library_dirs)


_HAS_NVRTC = _TOOLKIT is not None and any(
    list(Path(folder).glob("libnvrtc.so.*")) for folder in _TOOLKIT.library_dirs
)
needs_nvrtc = pytest.mark.skipif(not _HAS_NVRTC, reason="NVRTC is not installed here")
SIMPLE = Launch("k", args=["x", "y", "n"], grid="ceil_div(n, 256)", block=256)


def _one(args: list[str], launch: Launch = SIMPLE, **made: list[str]) -> dict[str, Any]:
    made = made or {"outputs": ["y: float32[n]"]}
    found: dict[str, Any] = described({"f": Function(args, [launch], **made)})["f"]
    return found


def test_sizes_are_named_once_and_known_to_all_expressions() -> None:
    launch = Launch("k", ["x", "w", "y", "2 * n - 1", "by"], ("n // 4", "max(m, 1)"), 64, "m % 3")
    found = _one(["x: float32[n, 8]", "w: float16[m, n,]", "by: float"], launch)
    assert found["variables"] == 2
    assert [item.get("dims") for item in found["args"]] == [["v0", 8], ["v1", "v0"], None]
    assert found["launches"][0]["grid"] == [["v0", "4", "/"], ["v1", "1", "M"], ["1"]]
    assert found["launches"][0]["shared"] == ["v1", "3", "%"]
    passed = found["launches"][0]["args"]
    integer = {"integer": ["2", "v0", "*", "1", "-"]}
    assert passed == [{"tensor": 0}, {"tensor": 1}, {"tensor": 3}, integer, {"float": 2}]


def test_a_shape_can_be_taken_as_a_whole() -> None:
    launch = Launch("k", ["x", "y", "numel(x)"], "ceil_div(numel(x), 256)", 256)
    found = _one(["x: float32[*s]", "w: bool[*s]"], launch, outputs=["y: float32[*s]"])
    assert [item["like"] for item in (*found["args"], *found["made"])] == [0, 0, 0]
    assert found["launches"][0]["args"][2] == {"integer": ["n0"]}


@pytest.mark.parametrize(
    ("args", "launch", "says"),
    [
        (["x: float33[n]"], SIMPLE, "element type is one of"),
        (["x float32[n]"], SIMPLE, "is not of the form"),
        (["x: float32[n + 1]"], SIMPLE, "neither a number nor a name"),
        (["n: int"], SIMPLE, "at least one argument must be a tensor"),
        (["x: float32[n]", "x: int"], SIMPLE, "declared twice|tensor and a number"),
        (["x: float32[n]"], Launch("k", ["z"], 1, 1), "'z' is not the name of a size"),
        (["x: float32[n]"], Launch("k", ["x"], "n / 2", 1), "not an integer expression"),
        (["x: float32[n]"], Launch("k", ["x"], "__import__('os')", 1), "is not min, max"),
        (["x: float32[n]"], Launch("k", ["x"], "n ** n", 1), "not an integer expression"),
        (["x: float32[n]"], Launch("k", ["x"], 1.5, 1), "one to three|integer expression|float"),
        (["x: float32[n]"], Launch("k", ["x"], (1, 1, 1, 1), 1), "one to three sizes"),
        (["x: float32[n]"], Launch("k k", ["x"], 1, 1), "is not an identifier"),
        (["x: float32[n]"], Launch("k", [str(1 << 63)], 1, 1), "does not fit 64 bits"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(args: list[str], launch: Launch, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        _one(args, launch)


async def _collected(worker: Worker, source: str) -> Collected:
    spec = {"source": REFERENCE.format(shape="4, 5"), "path": "reference.py"}
    return await collect(
        worker, Candidate(source, "candidate.py"), spec, path="candidate.py", timeout=60.0
    )


async def _compiled(worker: Worker, cache: Path, source: str, name: str) -> CompileOutcome:
    collected = await _collected(worker, source)
    assert collected.failure is None, collected.failure
    return await compile_requests(
        collected.requests, backend=name, worker_info=worker.info, cache_dir=cache,
        candidate=Candidate(source, "candidate.py"), timeout=60.0,
    )  # fmt: skip


@pytest.mark.asyncio(loop_scope="session")
async def test_a_candidate_is_recorded_with_its_launches(worker: Worker) -> None:
    (request,) = (await _collected(worker, CANDIDATE)).requests
    assert request.launches is not None
    assert set(json.loads(request.launches)) == {"both"}
    assert (request.sources[0].line, request.sources[0].language) == (4, "cuda")
    other = CANDIDATE.replace("block=128", "block=64")
    (changed,) = (await _collected(worker, other)).requests
    assert changed.key != request.key
    wrong = await _collected(worker, CANDIDATE.replace('grid="rows"', 'grid="row"'))
    assert wrong.failure is not None and "'row' is not the name" in wrong.failure.message
    assert wrong.failure.line is not None and wrong.failure.line > 20


@pytest.mark.asyncio(loop_scope="session")
async def test_a_backend_without_devices_does_not_compile_it(
    worker: Worker, compile_cache: Path
) -> None:
    outcome = await _compiled(worker, compile_cache, CANDIDATE, "cpu")
    assert outcome.failure is not None and outcome.failure.status == "compile_error"


@needs_nvrtc
@pytest.mark.asyncio(loop_scope="session")
async def test_nvrtc_makes_an_image_of_the_device(
    compiler: Compiler, worker: Worker, tmp_path: Path
) -> None:
    device = _device(compiler)
    assert device is not None
    nvrtc = native.find(device)
    assert nvrtc is not None and "alt" not in nvrtc.library
    (request,) = (await _collected(worker, CANDIDATE)).requests
    result = await native.compile_request(request, nvrtc, device, tmp_path, 60.0)
    assert result.library is not None, result.output
    assert native.parameter_sizes(result.library) == {
        "rectify": (8, 8, 4, 8), "row_sum": (8, 8, 4),
    }  # fmt: skip
    assert "Used" in result.output and "sm_90" in result.output
    assert symbols.has_device_code(result.library)
    assert symbols.code_loaders(result.library) == ()
    print(f"NVRTC took {result.seconds:.3f} s, its process included")


@needs_nvrtc
@pytest.mark.asyncio(loop_scope="session")
async def test_the_compile_stage_keeps_it_in_a_lane_of_its_own(
    worker: Worker, compile_cache: Path
) -> None:
    changed = CANDIDATE.replace("part[0];", f"part[0]; // {uuid.uuid4().hex}")
    first = await _compiled(worker, compile_cache, changed, "cuda")
    again = await _compiled(worker, compile_cache, changed, "cuda")
    assert first.failure is None, first.failure
    assert (first.report.lane, first.report.cached, again.report.cached) == ("native", False, True)
    assert {item.symbol for item in first.report.resources} == {"rectify", "row_sum"}
    (artefact,) = first.artefacts
    assert first.artefacts == again.artefacts and artefact.path.endswith("both.cubin")
    names = await load_in_process(artefact, "print(json.dumps([m.__name__, m.both.__doc__]))")
    doc = "both(x: torch.Tensor, by: float) -> Tuple[torch.Tensor, torch.Tensor]\n"
    assert names == ["both", doc]
    wrong = await _compiled(worker, compile_cache, changed.replace("x[i] *", "z[i] *"), "cuda")
    assert wrong.failure is not None and wrong.failure.status == "compile_error"
    assert (wrong.failure.line, wrong.report.lane) == (7, "native")


@needs_nvrtc
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("x[i] * by : 0.f", "x[i] * boo : 0.f", 7, '"boo" is undefined'),
        ('args=["x", "sums", "columns"]', 'args=["x", "sums"]', 9, "takes 3 parameters"),
        ('Launch("row_sum"', 'Launch("row_max"', 4, "no kernel"),
        ("float* y, float by", "float* y, double2 by", 5, "has 16 bytes"),
        ("const float* x, float* y, float by", "int x, float* y, float by", 5, "address of x"),
    ],
)
async def test_errors_stand_on_the_candidates_own_lines(
    compiler: Compiler, worker: Worker, tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    changed = CANDIDATE.replace(old, new)
    assert changed != CANDIDATE
    if "by" in new and "boo" not in new:
        changed = changed.replace("x[i] > 0.f ? x[i] * by : 0.f", "0.f")
    (request,) = (await _collected(worker, changed)).requests
    device = _device(compiler)
    nvrtc = native.find(device) if device is not None else None
    assert device is not None and nvrtc is not None
    result = await native.compile_request(request, nvrtc, device, tmp_path, 60.0)
    assert result.library is None
    found = diagnostics.on_candidate(result.messages, request.sources, "candidate.py")
    errors = [item for item in found if item.severity == "error"]
    assert [(item.line, says in item.message) for item in errors][:1] == [(line, True)], errors


def _artefact(folder: Path, prepared: Prepared, functions: dict[str, Function]) -> dict[str, Any]:
    """Of kernels that nothing loads: as far as a machine without a device can call them."""
    launches = json.dumps(described(functions))
    request = BuildRequest("m", (SourceText("cuda", ""),), launches=launches)
    sizes = {
        launch["kernel"]: (8,) * len(launch["args"])
        for function in json.loads(launches).values()
        for launch in function["launches"]
    }
    image = folder / "m.cubin"
    image.write_bytes(b"never loaded")
    shim, trampoline = str(prepared.shim), str(prepared.trampoline)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "parameter_sizes", lambda _: sizes)
        table = native.table(request, image)
    return asdict(Artefact("", str(image), "native", "m", trampoline, shim, table))


@pytest.mark.asyncio(loop_scope="session")
async def test_functions_are_bound_with_names_and_count_their_calls(
    prepared: Prepared, tmp_path: Path
) -> None:
    launch = Launch("k", ["x", "y", "by", "n * k + flag"], "ceil_div(n, 256)", 256)
    function = Function(
        ["x: float32[n, 4]", "by: float", "k: int", "flag: bool"], [launch], ["y: float32[n]"]
    )
    artefact = Artefact(**_artefact(tmp_path, prepared, {"f": function}))
    found = await load_in_process(
        artefact,
        "def said(*a, **k):\n"
        "    try: m.f(*a, **k)\n"
        "    except Exception as error: return [type(error).__name__, str(error)]\n"
        "x = torch.zeros(3, 4)\n"
        "answers = [said(x, by=1.5, k=2, flag=True), said(x, 1.5, 2), said(x, 'a', 2, True)]\n"
        "print(json.dumps([answers, m.f.__calls__, m.f.__doc__]))",
    )
    (on_cpu, short, wrong), calls, doc = found
    assert on_cpu == ["ValueError", "f(): x is on cpu, not on a CUDA device"]
    assert short[0] == wrong[0] == "TypeError"
    assert calls == 1
    assert doc.startswith("f(x: torch.Tensor, by: float, k: int, flag: bool) -> torch.Tensor")


@pytest.mark.asyncio(loop_scope="session")
async def test_a_damaged_table_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    made = _artefact(
        tmp_path, prepared, {"f": Function(["x: float32[n]"], [SIMPLE], ["y: int8[n]"])}
    )
    cut = {**made, "launches": made["launches"][:-4]}
    with pytest.raises(AssertionError, match="the launch table ends too early"):
        await load_in_process(Artefact(**cut), "print(1)")


def test_what_is_missing_is_said() -> None:
    assert "pip install nvidia-cuda-nvrtc" in native.missing()


def test_the_architecture_is_the_backends(compiler: Compiler) -> None:
    device = _device(compiler)
    if device is None:
        pytest.skip("nvcc is not installed here")
    request = BuildRequest("m", (), extra_cuda_cflags=("--use_fast_math -DX=1",))
    chosen = native.options(request, device)
    assert chosen[0] == "--gpu-architecture=sm_90"
    assert chosen[-2:] == ["--use_fast_math", "-DX=1"]
