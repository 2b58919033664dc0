"""Every attack is caught for the reason that it should be, and no honest kernel is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import evaluator
import honest
import on_cuda
import pytest
import work_avoided
import wrong_work
from attack import Attack, Honest, reasons
from musacoder_verifier.backends.registry import backend
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier, VerifyOptions

ATTACKS: tuple[Attack, ...] = (
    *work_avoided.ATTACKS,
    *wrong_work.ATTACKS,
    *evaluator.ATTACKS,
    *on_cuda.ATTACKS,
)
HONEST: tuple[Honest, ...] = (*honest.KERNELS, *on_cuda.HONEST)
CLASSES = (
    *(f"A{n}" for n in range(1, 11)),
    *(f"B{n}" for n in range(1, 7)),
    *(f"C{n}" for n in range(1, 8)),
)


# So many of a class run whenever the tests do, and `make attacks` runs all: each takes a second.
IN_EVERY_RUN = 2


def _marks(item: Attack | Honest, before: int) -> list[pytest.MarkDecorator]:
    """`before`: how many of its class stand before it and always run."""
    if item.backend != "cpu":
        return [pytest.mark.gpu]
    variant = isinstance(item, Attack) and not item.always and before >= IN_EVERY_RUN
    return [pytest.mark.attack_variant] if variant else []


def _parameters(table: Sequence[Attack | Honest]) -> list[object]:
    counted = Counter(i.klass for i in table if isinstance(i, Attack) and i.always)
    found: list[object] = []
    for item in table:
        marks = _marks(item, counted[item.klass])
        counted[item.klass] += item.backend == "cpu" and not getattr(item, "always", False)
        found.append(pytest.param(item, id=re.sub(r"\W+", "-", item.name), marks=marks))
    return found


async def _verdict(verifier: Verifier, item: Attack | Honest, timed: bool) -> Verdict:
    why = backend(item.backend).missing()
    if why is not None:
        pytest.skip(why)
    options = VerifyOptions(
        backend=item.backend,
        # The stock lane takes a minute; what the fast lane lacks on a device takes it all the same.
        lane="fast" if item.backend == "cpu" else "auto",
        policy=item.policy,
        timing=timed,
        timing_budget=0.3,
        scope=bool(getattr(item, "scope", None)),
        compile_baseline=False,
        profile=False,
    )
    return await verifier.verify(
        Reference(item.reference, training=item.training),
        Candidate(item.candidate, path="kernel.py"),
        options,
    )


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("item", _parameters(ATTACKS))
async def test_an_attack_is_caught(item: Attack, verifier: Verifier) -> None:
    verdict = await _verdict(verifier, item, item.timed)
    if item.known_gap:
        assert verdict.status == "ok", "no gap any more: say so in docs/threat-model.md"
        return
    expected = (item.status,) if isinstance(item.status, str) else item.status
    assert verdict.status in expected, (verdict.failure, verdict.legality)
    assert not item.rules or item.rules & reasons(verdict), (verdict.failure, verdict.legality)
    assert not verdict.faster and verdict.timing is None
    assert verdict.reward is not None and verdict.reward < 0.0


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("item", _parameters(HONEST))
async def test_an_honest_kernel_passes(item: Honest, verifier: Verifier) -> None:
    verdict = await _verdict(verifier, item, timed=False)
    assert verdict.status == "ok", (verdict.failure, verdict.legality, verdict.correctness)
    assert verdict.legality is not None and verdict.legality.verdict == "pass"
    assert item.said <= {finding.rule for finding in verdict.legality.findings}
    assert verdict.correctness is not None
    assert verdict.correctness.mode == ("train" if item.training else "eval")
    for probe, outcome in item.scope.items():
        assert verdict.correctness.scope.get(probe) == outcome, verdict.correctness.scope


def test_every_class_of_the_catalogue_has_an_attack() -> None:
    counted = Counter(item.klass for item in ATTACKS)
    assert not [klass for klass in CLASSES if not counted[klass]], counted
    everything: list[Attack | Honest] = [*ATTACKS, *HONEST]
    names = [(item.name, item.backend) for item in everything]
    assert len(set(names)) == len(names)
