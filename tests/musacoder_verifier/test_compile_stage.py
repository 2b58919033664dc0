"""The compile stage on real sources: lanes, messages, cache, a machine that fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from pathlib import Path

import psutil
import pytest
from compiled import load_in_process
from musacoder_verifier.build_request import BuildRequest, SourceText
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.lanes.prepare import Prepared, PrepareError
from musacoder_verifier.lanes.symbols import operators_called
from musacoder_verifier.stages.compile import CompileOutcome, compile_requests
from musacoder_verifier.worker import WorkerInfo

pytestmark = pytest.mark.asyncio(loop_scope="session")

RELU = """
at::Tensor relu(at::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous, got strides ", x.strides());
  auto out = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* b = out.data_ptr<float>();
  const int64_t n = x.numel();
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) b[i] = a[i] > 0 ? a[i] : 0;
  return out;
}
"""


def relu(text: str = RELU, **fields: object) -> BuildRequest:
    """A request of its own: no cache knows it."""
    text = f"{text}// {uuid.uuid4().hex}\n"
    source = SourceText("cpp", text, line=5, column=11)
    return BuildRequest("relu_ext", (source,), (("relu", "relu"),), **fields)  # type: ignore[arg-type]


async def compiled(
    request: BuildRequest, info: WorkerInfo, cache: Path, **options: object
) -> CompileOutcome:
    return await compile_requests(
        [request],
        backend="cpu",
        worker_info=info,
        cache_dir=cache,
        candidate=Candidate("", path="/project/candidate.py"),
        **{"timeout": 300.0, **options},  # type: ignore[arg-type]
    )


async def test_a_plain_extension_takes_the_fast_lane(worker_info: WorkerInfo, compile_cache: Path):
    request = relu()
    outcome = await compiled(request, worker_info, compile_cache)
    assert outcome.failure is None, outcome
    assert outcome.report.lane == "fast"
    assert outcome.report.lane_reason is None
    assert not outcome.report.cached
    assert outcome.report.flags[:3] == ("-O3", "-march=native", "-fopenmp")
    assert operators_called(outcome.artefacts[0].path) == ("aten::empty_like",)
    again = await compiled(request, worker_info, compile_cache)
    assert again.report.cached
    assert again.artefacts == outcome.artefacts


async def test_a_syntax_error_needs_no_second_opinion(worker_info: WorkerInfo, compile_cache: Path):
    request = relu(RELU.replace("return out;", "return out"))
    outcome = await compiled(request, worker_info, compile_cache)
    assert outcome.failure is not None
    assert outcome.failure.status == "compile_error"
    assert outcome.report.lane == "fast"
    (found,) = (item for item in outcome.report.diagnostics if item.severity == "error")
    assert (found.file, found.line) == ("/project/candidate.py", 14)
    assert "expected" in found.message
    assert "candidate.py:14:" in outcome.failure.detail


@pytest.mark.parametrize("part", ["g++", "cc1plus"])
async def test_a_killed_compiler_starts_again_in_the_same_lane(
    part: str, worker_info: WorkerInfo, compile_cache: Path, prepared: Prepared
) -> None:
    work = asyncio.ensure_future(compiled(relu(), worker_info, compile_cache))
    killed = False
    while not (killed or work.done()):
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == part:
                    process.kill()
                    killed = True
                    break
        await asyncio.sleep(0)
    outcome = await work
    assert killed
    assert outcome.failure is None, outcome
    assert outcome.report.lane == "fast"


async def test_an_unknown_name_needs_no_second_opinion(
    worker_info: WorkerInfo, compile_cache: Path
):
    request = relu(RELU.replace("return out;", "return qwertz;"))
    outcome = await compiled(request, worker_info, compile_cache)
    assert outcome.report.lane == "fast"
    assert outcome.failure is not None
    assert outcome.failure.line == 14
    assert "qwertz" in outcome.failure.message


async def test_the_fast_lane_alone_reports_what_it_lacks(
    worker_info: WorkerInfo, compile_cache: Path
):
    request = relu(RELU.replace("return out;", "return torch::tensor({1.0f});"))
    outcome = await compiled(request, worker_info, compile_cache, lane="fast")
    assert outcome.failure is not None
    assert "tensor" in outcome.failure.message


async def test_our_own_names_do_not_compile_for_a_candidate(
    worker_info: WorkerInfo, compile_cache: Path
):
    request = relu(RELU.replace("return out;", "mc_grad_mode(0); return out;"))
    outcome = await compiled(request, worker_info, compile_cache, lane="fast")
    assert outcome.failure is not None
    assert "mc_grad_mode" in outcome.failure.message


async def test_device_sources_are_refused_on_the_cpu(worker_info: WorkerInfo, compile_cache: Path):
    request = BuildRequest("x", (SourceText("cuda", "__global__ void f() {}", line=3, column=1),))
    outcome = await compiled(request, worker_info, compile_cache)
    assert outcome.failure is not None
    assert outcome.failure.status == "compile_error"
    assert "device sources" in outcome.failure.message


async def test_no_requests_are_nothing_to_do(worker_info: WorkerInfo, compile_cache: Path):
    outcome = await compile_requests(
        [], backend="cpu", worker_info=worker_info, cache_dir=compile_cache,
        candidate=Candidate(""), timeout=10.0,
    )  # fmt: skip
    assert outcome.report.lane == "none"
    assert outcome.failure is None


async def test_a_hanging_compile_is_a_timeout(worker_info: WorkerInfo, compile_cache: Path):
    # Instantiates for longer than anybody waits.
    endless = (
        "template <int N, int M> struct F { static constexpr int v = F<N - 1, M * 2>::v + "
        "F<N - 1, M * 2 + 1>::v; };\n"
        "template <int M> struct F<0, M> { static constexpr int v = M; };\n"
        "constexpr int big = F<24, 0>::v;\n"
    )
    outcome = await compiled(relu(endless + RELU), worker_info, compile_cache, timeout=3.0)
    assert outcome.failure is not None
    assert outcome.failure.status == "timeout"
    assert "did not finish within 3 s" in outcome.failure.message


async def test_a_missing_compiler_is_one_sentence(worker_info: WorkerInfo, compile_cache: Path):
    outcome = await compiled(relu(), worker_info, compile_cache, compiler="/nowhere/g++")
    assert outcome.failure is not None
    assert outcome.failure.status == "infra_error"
    assert "/nowhere/g++" in outcome.failure.message
    assert outcome.failure.message.count("\n") == 0


def failing_compiler(folder: Path, ending: str) -> str:
    """One that tells its version, and ends by the shell command `ending` when it should compile."""
    path = folder / "g++"
    path.write_text(f'#!/bin/sh\ncase " $* " in *" -o "*) ;; *) exec g++ "$@" ;; esac\n{ending}\n')
    path.chmod(0o755)
    return str(path)


ENDINGS = {
    "killed": "kill -9 $$",
    "full": "echo 'fatal error: x.o: No space left on device' >&2; exit 1",
    "gone": 'rm -f -- "$0"; exit 1',
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_a_failed_preparation_is_one_sentence(
    worker_info: WorkerInfo, tmp_path: Path, ending: str
):
    """Several compilers fail at once there; what comes out is one failure, not a group."""
    compiler = failing_compiler(tmp_path, ending)
    cache = tmp_path / "cache"
    outcome = await compiled(relu(), worker_info, cache, compiler=compiler, lane="fast")
    assert outcome.failure is not None
    assert (outcome.failure.status, outcome.failure.stage) == ("infra_error", "compile")
    assert outcome.failure.message.count("\n") == 0
    assert "fast lane" in outcome.failure.message or "not installed" in outcome.failure.message
    assert list((cache / "prepared").glob("tmp-*")) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PrepareError("broken")])
async def test_a_failed_preparation_falls_to_the_stock_lane(
    worker_info: WorkerInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    async def fails(*_: object, **__: object) -> None:
        await asyncio.sleep(0)
        raise error

    monkeypatch.setattr("musacoder_verifier.lanes.prepare._must", fails)
    compiler = failing_compiler(tmp_path, ENDINGS["full"])
    outcome = await compiled(relu(), worker_info, tmp_path / "cache", compiler=compiler)
    assert outcome.report.lane == "stock"
    assert outcome.report.lane_reason is not None
    assert ("free some space" if isinstance(error, OSError) else "broken") in (
        outcome.report.lane_reason
    )
    # The stock lane fails on the same machine: in words, not as a fault of ours or the source's.
    assert outcome.failure is not None and outcome.failure.status == "infra_error"
    assert "disk" in outcome.failure.message and "full" in outcome.failure.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_cache_that_cannot_be_written_is_one_sentence(
    worker_info: WorkerInfo, tmp_path: Path
):
    tmp_path.chmod(0o500)
    outcome = await compiled(relu(), worker_info, tmp_path / "cache", lane="fast")
    assert outcome.failure is not None
    assert outcome.failure.status == "infra_error"


async def test_errors_keep_their_kind(worker_info: WorkerInfo, compile_cache: Path):
    source = """
    #include <stdexcept>
    int check(int n) {
      TORCH_CHECK(n != 0, "runtime ", n);
      TORCH_CHECK_INDEX(n != 1, "index ", n);
      TORCH_CHECK_VALUE(n != 2, "value ", n);
      TORCH_CHECK_TYPE(n != 3, "type ", n);
      TORCH_CHECK_NOT_IMPLEMENTED(n != 4, "not implemented ", n);
      if (n == 5) throw std::out_of_range("range");
      if (n == 6) throw std::invalid_argument("argument");
      if (n == 7) throw 7;
      if (n == 8) torch::ones({2}).view({3});
      return n;
    }
    """
    request = BuildRequest("kinds", (SourceText("cpp", source),), (("check", "check"),))
    outcome = await compiled(request, worker_info, compile_cache)
    assert outcome.failure is None, outcome.failure
    answers = await load_in_process(
        outcome.artefacts[0],
        """
def kind(n):
    try:
        return m.check(n)
    except Exception as e:
        return [type(e).__name__, str(e)]
print(json.dumps([kind(n) for n in range(10)]))
""",
    )
    assert answers[:8] == [
        ["RuntimeError", "runtime 0"],
        ["IndexError", "index 1"],
        ["ValueError", "value 2"],
        ["TypeError", "type 3"],
        ["NotImplementedError", "not implemented 4"],
        ["IndexError", "range"],
        ["ValueError", "argument"],
        ["RuntimeError", "Caught an unknown exception!"],
    ]
    assert answers[8][0] == "RuntimeError"
    assert "shape '[3]' is invalid for input of size 2" in answers[8][1]
    assert answers[9] == 9


async def test_what_the_interpreter_raises_below_a_call_passes_through_it(
    worker_info: WorkerInfo, compile_cache: Path
):
    """A dispatch mode runs in Python whatever an extension asks torch for."""
    source = """
    torch::Tensor make(int64_t n) { return torch::empty({n}); }
    int swallow() {
      try { torch::empty({1}); } catch (const c10::Error& error) {
        return std::string(error.what()) == "no room" ? 1 : 2;
      }
      return 0;
    }
    int own() {
      try { torch::empty({1}); } catch (const std::exception&) {}
      TORCH_CHECK_INDEX(false, "mine");
    }
    """
    names = ("make", "swallow", "own")
    functions = tuple((name, name) for name in names)
    request = BuildRequest("below", (SourceText("cpp", source),), functions)
    outcome = await compiled(request, worker_info, compile_cache, lane="fast")
    assert outcome.failure is None, outcome.failure
    answers = await load_in_process(
        outcome.artefacts[0],
        """
from torch.utils._python_dispatch import TorchDispatchMode
class Odd(Exception):
    pass
class Raising(TorchDispatchMode):
    def __init__(self, error):
        super().__init__()
        self.error = error
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise self.error
def kind(call, error):
    try:
        with Raising(error):
            return call()
    except BaseException as e:
        return [type(e).__name__, str(e), e is error]
def plain(n):
    try:
        m.make(n)
    except Exception as e:
        return [type(e).__name__, str(e)]
print(json.dumps([
    kind(lambda: m.make(1), torch.OutOfMemoryError("no room")),
    kind(lambda: m.make(1), Odd("strange")),
    kind(lambda: m.make(1), KeyboardInterrupt()),
    kind(m.swallow, torch.OutOfMemoryError("no room")),
    kind(m.own, torch.OutOfMemoryError("no room")),
    plain(1 << 44),
]))
""",
    )
    assert answers[:5] == [
        ["OutOfMemoryError", "no room", True],
        ["Odd", "strange", True],
        ["KeyboardInterrupt", "", True],
        1,
        ["IndexError", "mine", False],
    ]
    assert answers[5][0] == "RuntimeError" and "allocate" in answers[5][1]


@pytest.mark.slow
async def test_what_the_facade_lacks_takes_the_stock_lane(
    worker_info: WorkerInfo, compile_cache: Path
):
    """And both lanes behave alike: arguments, defaults, conversions, errors, documentation."""
    source = (Path(__file__).parent / "data" / "bindings.cpp").read_text()
    fast = BuildRequest("bindings", (SourceText("cpp", source),))
    lacking = source + "\nstatic auto unused = &torch::jit::tracer::isTracing;\n"
    stock = BuildRequest("bindings", (SourceText("cpp", lacking),))
    first = await compiled(fast, worker_info, compile_cache)
    second = await compiled(stock, worker_info, compile_cache, timeout=900.0)
    assert first.failure is None, first.failure
    assert second.failure is None, second.failure
    assert (first.report.lane, second.report.lane) == ("fast", "stock")
    assert second.report.lane_reason is not None
    calls = (Path(__file__).parent / "data" / "bindings_calls.py").read_text() + "\nrun(m)\n"
    ours = await load_in_process(first.artefacts[0], calls)
    theirs = await load_in_process(second.artefacts[0], calls)
    assert ours == theirs
    assert "aten::add_Tensor" in operators_called(second.artefacts[0].path)
    assert "aten::add.Tensor" in operators_called(first.artefacts[0].path)
