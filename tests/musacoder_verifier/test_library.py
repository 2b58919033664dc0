"""The library: what docs/library.md shows, batches and their slots, Workloads as text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import musacoder_verifier
import pytest
import torch
from hand_candidates import HONEST, candidate, reference
from musacoder_verifier import Candidate, Reference, Verifier, VerifyOptions, library
from musacoder_verifier.slots import Slots
from musacoder_verifier.verifier import StageEvent, VerifierSettings
from musacoder_verifier.workload import InputSpec, Workload, get_inputs_source, parse

DOCUMENT = Path(__file__).parents[2] / "docs" / "library.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
QUICK = VerifyOptions(timing=False, scope=False)


@pytest.fixture
def project(tmp_path: Path, compile_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the files that the document names, and the tests' compile cache."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "musacoder").symlink_to(compile_cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reference.py").write_text(reference())
    (tmp_path / "candidate.py").write_text(HONEST)
    yield tmp_path


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_documents_examples_run(
    example: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = {"__name__": "example"}
    exec(compile(example, str(DOCUMENT), "exec"), namespace)
    verdict = namespace.get("verdict")
    assert verdict is None or verdict.status == "ok", verdict.failure  # type: ignore[attr-defined]
    if ".status)" in example or "result(" in example:
        assert re.search(r"\bok\b|'correctness': True", capsys.readouterr().out)


def test_every_name_that_the_package_offers_exists() -> None:
    for name in musacoder_verifier.__all__:
        assert getattr(musacoder_verifier, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = musacoder_verifier.nothing


async def test_verify_inside_a_running_loop(project: Path) -> None:
    verdict = library.verify(reference(), HONEST, timing=False, scope=False)
    assert verdict.status == "ok", verdict.failure
    with pytest.raises(FileNotFoundError):
        library.verify("nowhere.py", HONEST)
    with pytest.raises(TypeError, match="speed"):
        library.verify(reference(), HONEST, speed=True)


@pytest.mark.asyncio(loop_scope="session")
async def test_many_verdicts_and_an_iterator_that_is_left_early(verifier: Verifier) -> None:
    sources = [HONEST, candidate("return ext.copied(x)"), candidate("return ext.refuse(x)")]
    pairs = [(Reference(reference()), Candidate(source)) for source in sources]
    found: dict[int, str] = {}
    async for index, verdict in verifier.verify_many(pairs, QUICK):
        found[index] = verdict.status
    assert found == {0: "ok", 1: "wrong_result", 2: "runtime_error"}

    started: set[int] = set()
    iterator = verifier.verify_many(
        pairs * 4, QUICK, at_once=2, on_stage=lambda index, event: started.add(index)
    )
    async for _ in iterator:
        break
    await iterator.aclose()  # type: ignore[attr-defined]
    assert len(started) <= 3  # read no faster than places are free
    assert not [task for task in asyncio.all_tasks() if "verify_many" in repr(task.get_coro())]


async def test_a_slot_is_waited_for_and_told() -> None:
    slots = Slots(2, 1)
    told: list[str] = []
    inside = 0

    async def one(name: str) -> None:
        nonlocal inside
        async with slots.on_device("cpu", lambda: told.append(name)):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(one(name) for name in "abc"))
    assert told == ["b", "c"]
    for bad in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="slot"):
            Slots(*bad)


@pytest.mark.asyncio(loop_scope="session")
async def test_compiling_goes_on_while_the_device_is_taken(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier, "slots", Slots(1, 1))
    waiting = asyncio.Event()

    def listen(event: StageEvent) -> None:
        if event.state == "waiting":
            waiting.set()

    pair = Reference(reference()), Candidate(HONEST)
    async with verifier.slots.on_device("cpu", lambda: None):
        task = asyncio.create_task(verifier.verify(*pair, QUICK, listen))
        await waiting.wait()  # it has compiled
        assert not task.done()
    assert (await task).status == "ok"


@pytest.mark.parametrize(
    "text", ["x f32[1024, 4096], n 3", "mask bool[2, 3], i i64[5]", "x f16[], name 'a, b'"]
)
def test_a_workload_as_text_is_its_description(text: str) -> None:
    assert parse(text).describe() == text
    scope: dict[str, object] = {}
    exec(get_inputs_source(parse(text.replace("1024, 4096", "4, 8"))), scope)
    for spec, value in zip(parse(text).inputs, scope["get_inputs"](), strict=True):  # type: ignore[operator]
        if spec.value is None:
            assert str(value.dtype) == f"torch.{spec.dtype}"


@pytest.mark.parametrize("text", ["x", "x f33[3]", "x f32[a]", "n import os", ""])
def test_what_is_no_workload(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_ranges_and_strides_of_a_workload_are_kept() -> None:
    specs = (
        InputSpec("x", "float32", (64, 32), (1, 64), low=-2.0, high=3.0),
        InputSpec("i", "int64", (1000,), (1,), low=5, high=7),
    )
    scope: dict[str, object] = {}
    exec(get_inputs_source(Workload("captured", specs)), scope)
    x, i = scope["get_inputs"]()  # type: ignore[operator]
    assert x.stride() == (1, 64) and -2.0 <= float(x.min()) < -1.0 < 2.0 < float(x.max()) <= 3.0
    assert i.dtype == torch.int64 and set(i.tolist()) == {5, 6, 7}


def test_a_cache_named_from_here_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = VerifierSettings(cache_dir=Path("cache"))
    assert settings.cache_dir == tmp_path / "cache"
