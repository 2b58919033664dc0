"""Stage correctness: ModelNew against Model, on many inputs, judged where ModelNew cannot reach.

The reference child makes expected values and judges; the candidate child makes the same inputs
from the same seeds (digests must agree) and sends outputs through a memory file. What is seen on
the way about legality is kept as `Evidence`, whatever becomes of the trial.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from musacoder_verifier.stages import kernelbench
from musacoder_verifier.stages.evidence import Evidence, Figures
from musacoder_verifier.stages.pair import Pair
from musacoder_verifier.stages.side import Deadline, StageStop, number, started
from musacoder_verifier.verdict import Correctness, Failure

OWN = "own"
_STRESS = (
    "shifted", "wide", "negative", "heavy", "fine", "small", "sorted", "constant", "binary",
)  # fmt: skip
_OWN_TRIALS = 5
# Trials that are also run a second time, unpoisoned.
_REPEATED = 2
_SEED_STEP = 1000003
# What is planned beyond the first own trials must not take more than this share of the stage.
_SHARE = 0.5
# Inputs and outputs of two trials together may take this much of the Reference's memory.
_AHEAD_BYTES = 1 << 30


@dataclass
class CorrectnessOutcome:
    correctness: Correctness | None
    failure: Failure | None
    evidence: Evidence
    not_checked: list[str]
    setup: Mapping[str, Any]  # the reference child's answer to `setup`
    weak_imposters: tuple[str, ...] = ()


@dataclass(frozen=True)
class SetUp:
    """`reference`: its answer. `candidate`: its own, when it comes."""

    reference: Mapping[str, Any]
    candidate: asyncio.Future[Mapping[str, Any]]


async def set_up(pair: Pair, deadline: Deadline) -> SetUp:
    """Build both sides. Returns when the Reference is built and agrees with itself; StageStop with
    reference_error where it does not, whatever becomes of the Candidate."""
    candidate = asyncio.ensure_future(
        pair.candidate.ask({"op": "setup"}, deadline, "building ModelNew")
    )
    try:
        reference = await pair.reference.ask({"op": "setup", "seed": pair.seed}, deadline)
    except BaseException:
        candidate.cancel()
        raise
    return SetUp(reference, candidate)


async def check(
    pair: Pair,
    setup: SetUp,
    deadline: Deadline,
    *,
    training: bool,
    like_kernelbench: kernelbench.Trials | None = None,
    planned: int = kernelbench.TRIALS,
) -> CorrectnessOutcome:
    """All trials: ours, or `planned` ones as KernelBench runs them, noted in `like_kernelbench`.
    StageStop only for faults of the Reference, and where our own work took the time; InfraFault
    for the machine's."""
    run = _Check(pair, deadline)
    failure: Failure | None = None
    oracle: Mapping[str, Any] = {"state": "strong", "imposters": []}
    try:
        await run.set_up(setup)
        if like_kernelbench is None:
            await run.trials(bool(setup.reference["parameters"]))
        else:
            await run.trials_like_kernelbench(planned, like_kernelbench)
    except StageStop as stop:
        if stop.failure.status in ("reference_error", "infra_error"):
            raise
        failure = stop.failure
        run.figures.trials += 1
        run.figures.fail("run", failure.message)
    else:
        if like_kernelbench is None:
            oracle = await pair.reference.ask({"op": "oracle"}, deadline, runs_user_code=False)
    correctness = run.figures.freeze(oracle["state"], training)
    if like_kernelbench is not None:
        frozen = like_kernelbench.freeze(planned)
        correctness = dataclasses.replace(correctness, kernelbench=frozen)
    if failure is None and not correctness.passed:
        failure = _wrong(correctness, run.figures, pair)
    return CorrectnessOutcome(
        correctness if run.evidence.runs else None,
        failure,
        run.evidence,
        run.not_checked,
        setup.reference,
        tuple(oracle["imposters"]),
    )


def _wrong(correctness: Correctness, figures: Figures, pair: Pair) -> Failure:
    near = " (a near miss: the relative error is below 1e-3)" if correctness.near_miss else ""
    message = (
        f"{correctness.trials - correctness.passed_trials} of {correctness.trials} trials fail: "
        f"{_CHECKS.get(correctness.failed_check or '', 'wrong values')}{near}"
    )
    return Failure("wrong_result", "correctness", message, figures.detail)


_CHECKS = {
    "values": "values differ from the Reference's",
    "structure": "the outputs have another structure",
    "output_type": "an output is no plain tensor",
    "shape": "an output has another shape",
    "dtype": "an output has another dtype",
    "inputs_mutated": "inputs are changed that the Reference leaves alone",
    "inputs_kept": "inputs are left alone that the Reference changes",
    "effects": "changed inputs or buffers have other values than the Reference's",
    "output_aliases_input": "an output shares memory with an input",
    "output_reused": "an output is overwritten by the next call",
    "unwritten_output": "parts of an output are never written",
    "cached_result": "an earlier result is returned again",
    "parameters": "changed parameters are ignored",
    "inputs": "importing the Candidate changes the inputs that are made",
}


async def _together(
    candidate: Awaitable[Mapping[str, Any]], reference: Awaitable[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Both answers. When both fail it is the Reference's failure that counts: the Candidate may
    only have followed it."""
    answers = await asyncio.gather(candidate, reference, return_exceptions=True)
    for answer in reversed(answers):
        if isinstance(answer, BaseException):
            raise answer
    return cast("tuple[Mapping[str, Any], Mapping[str, Any]]", tuple(answers))


@dataclass(frozen=True)
class _Recipe:
    """`place`: which trial of its kind, told by its seed. `check`: what wrong values mean here."""

    distribution: str
    place: int
    check: str | None = None


@dataclass(frozen=True)
class _Trial:
    recipe: _Recipe
    message: Mapping[str, Any]  # the recipe as both children take it
    expected: asyncio.Future[dict[str, Any]]


def _ahead_fits(setup: Mapping[str, Any]) -> bool:
    if setup["sparing"]:
        return False
    return int(setup["input_bytes"]) + int(setup["output_bytes"]) <= _AHEAD_BYTES // 2


class _Check:
    def __init__(self, pair: Pair, deadline: Deadline) -> None:
        self.pair = pair
        self.deadline = deadline
        self.figures = Figures()
        self.evidence = Evidence()
        self.not_checked: list[str] = []
        self._index = 0
        self._started = time.monotonic()
        self._poison = True
        self._ahead = False
        # The trial that is also watched in a second way; nobody can know which.
        self._shadowed = random.SystemRandom().randrange(_OWN_TRIALS)

    async def set_up(self, setup: SetUp) -> None:
        answer = await setup.candidate
        self._ahead = _ahead_fits(setup.reference)
        try:
            if answer["digest"] != setup.reference["digest"]:
                raise StageStop(
                    Failure(
                        "reference_error",
                        "reference",
                        "get_inputs gives other values in another process although the "
                        "generators are seeded",
                    )
                )
            self.evidence.note_changes(answer["changes"])
            self.evidence.note_audited(answer["audited"])
            self.evidence.extensions = int(answer["extensions"])
            self._poison = bool(answer["poison"])
            self.evidence.watchable = bool(answer["watchable"])
        except (KeyError, TypeError, ValueError) as error:
            raise self.pair.candidate.nonsense(self.deadline, error) from error
        if not self._poison:
            self.not_checked.append("outputs fully written (memory cannot be poisoned here)")

    async def trials(self, parameters: bool) -> None:
        loaded = parameters and await self._transfer(None)
        await self._run(_Recipe(OWN, place) for place in range(_OWN_TRIALS))
        if loaded:
            await self._transfer(self.pair.seed + 1)
            await self._run([_Recipe(OWN, _OWN_TRIALS, check="parameters")])
            await self._transfer(self.pair.seed + 2)
        elif parameters:
            self.not_checked.append(
                "changed parameters (ModelNew's state_dict has other names than Model's)"
            )
        await self._run(self._stress())

    def _stress(self) -> Iterator[_Recipe]:
        """One trial of each distribution, while there is time."""
        for place, distribution in enumerate(_STRESS):
            if time.monotonic() - self._started > _SHARE * self.deadline.seconds:
                skipped = ", ".join(_STRESS[place:])
                self.not_checked.append(f"value distributions {skipped} (no time left)")
                break
            yield _Recipe(distribution, place)

    async def _run(self, recipes: Iterable[_Recipe]) -> None:
        """One trial after the other. Where memory allows, the Reference makes the next one's
        expected values while the Candidate runs: parameters must not change in between."""
        left = iter(recipes)
        trial = self._begin(left)
        while trial is not None:
            following = self._begin(left) if self._ahead else None
            await self._trial(trial)
            trial = following or self._begin(left)

    def _begin(self, recipes: Iterator[_Recipe]) -> _Trial | None:
        """The next trial, its expected values asked for; the Reference answers in order."""
        recipe = next(recipes, None)
        if recipe is None:
            return None
        message = {
            "seed": self.pair.seed + recipe.place * _SEED_STEP,
            "distribution": recipe.distribution,
            "index": self._index,
        }
        self._index += 1
        asked = self.pair.reference.ask({"op": "trial", **message}, self.deadline)
        return _Trial(recipe, message, started(asked))

    async def trials_like_kernelbench(self, planned: int, notes: kernelbench.Trials) -> None:
        """Neither poisoned memory nor repeats, and nothing but `torch.allclose` decides."""
        self.not_checked += [
            "other value distributions (KernelBench mode)",
            "side effects, aliases, unwritten outputs (KernelBench mode)",
        ]
        message = {"op": "trial_seeds", "seed": kernelbench.SEED, "count": planned}
        drawn = await self.pair.reference.ask(message, self.deadline, runs_user_code=False)
        for place, seed in enumerate(drawn["seeds"]):
            recipe = {"seed": seed, "distribution": OWN, "index": self._index}
            shadow = place == self._shadowed % planned
            run = {"op": "trial", **recipe, "reuse": False, "poison": False, "shadow": shadow}
            answer, expected = await _together(
                self.pair.candidate.ask(run, self.deadline, "running ModelNew.forward"),
                self.pair.reference.ask({"op": "trial", **recipe}, self.deadline),
            )
            self._index += 1
            try:
                self.evidence.note(answer)
                outputs = dict(answer["outputs"])
            except (KeyError, TypeError, ValueError) as error:
                raise self.pair.candidate.nonsense(self.deadline, error) from error
            judged = await self.pair.reference.ask(
                {
                    "op": "allclose",
                    "outputs": outputs,
                    "index": recipe["index"],
                    "tolerances": list(notes.tolerances),
                },
                self.deadline,
                runs_user_code=False,
            )
            self._count_like_kernelbench(notes, judged, answer["digest"] == expected["digest"])
            if judged["error"] is not None or judged["shape"] is not None:
                return

    def _count_like_kernelbench(
        self, notes: kernelbench.Trials, judged: Mapping[str, Any], same_inputs: bool
    ) -> None:
        problem = notes.note(judged)
        self.figures.tolerance.update(notes.tolerance_of(judged))
        if not same_inputs:
            self.evidence.changes.add(("patched-torch", "the generators behind get_inputs"))
            problem = "inputs", "the inputs made after the import differ from those made before"
        figures = self.figures
        figures.trials += 1
        if problem is None:
            figures.passed += 1
        else:
            figures.fail(*problem)
        figures.max_abs = max(figures.max_abs, number(judged["max_difference"]))

    async def _transfer(self, seed: int | None) -> bool:
        """Give ModelNew the parameters of Model, changed by `seed`; False: the names differ."""
        state = await self.pair.reference.ask({"op": "state", "seed": seed}, self.deadline)
        answer = await self.pair.candidate.ask(
            {"op": "load_state", "state": state["state"]}, self.deadline, "loading parameters"
        )
        return bool(answer.get("loaded"))

    async def _trial(self, trial: _Trial) -> None:
        distribution, index = trial.recipe.distribution, trial.message["index"]
        own = distribution == OWN
        doing = "running ModelNew.forward"
        if not own:
            doing += f" on {distribution} values"
        run = {
            "op": "trial",
            **trial.message,
            "reuse": index % 2 == 1,
            "poison": self._poison,
            "shadow": own and trial.recipe.place == self._shadowed,
        }
        if own:
            # Both sides at once: the Reference cannot skip these.
            answer, expected = await _together(
                self.pair.candidate.ask(run, self.deadline, doing), trial.expected
            )
        else:
            expected = await trial.expected
            if "skip" in expected:
                self.not_checked.append(f"values {distribution}: {expected['skip']}")
                return
            answer = await self.pair.candidate.ask(run, self.deadline, doing)
        try:
            self.evidence.note(answer)
            outputs = dict(answer["outputs"])
        except (KeyError, TypeError, ValueError) as error:
            raise self.pair.candidate.nonsense(self.deadline, error) from error
        judged = await self._judge(outputs, index, first=True)
        problem = self._problem(answer, expected, judged) or await self._effects(answer)
        if index < _REPEATED:
            problem = await self._repeat(trial, judged, problem)
        recipe = trial.recipe
        where = "" if own else f"on {distribution} values: "
        self.figures.count(judged, problem, own=own, check=recipe.check, where=where)

    async def _judge(self, outputs: dict[str, Any], index: int, *, first: bool) -> dict[str, Any]:
        return await self.pair.reference.ask(
            {"op": "judge", "outputs": outputs, "index": index, "first": first},
            self.deadline,
            runs_user_code=False,
        )

    def _problem(
        self, answer: Mapping[str, Any], expected: Mapping[str, Any], judged: Mapping[str, Any]
    ) -> tuple[str, str] | None:
        """(check, detail) of the first check that this trial fails."""
        if answer["digest"] != expected["digest"]:
            self.evidence.changes.add(("patched-torch", "the generators behind get_inputs"))
            return "inputs", "the inputs made after the import differ from those made before"
        if judged["check"] == "values" and judged.get("same_as_trial") is not None:
            self.evidence.cached_result = True
            return "cached_result", f"the output is the one of trial {judged['same_as_trial']}"
        if judged["check"] is not None:
            return str(judged["check"]), str(judged["detail"])
        mutated = set(answer["mutated"]) - set(expected["mutated"])
        if mutated:
            return "inputs_mutated", f"changed input leaves: {sorted(mutated)}"
        kept = set(expected["mutated"]) - set(answer["mutated"])
        if kept:
            return "inputs_kept", f"unchanged input leaves: {sorted(kept)}"
        given = {tuple(pair) for pair in expected["aliases"]}
        shared = [pair for pair in answer["aliases"] if tuple(pair) not in given]
        if shared:
            return "output_aliases_input", f"output {shared[0][0]} is input {shared[0][1]}"
        if answer["earlier_output_changed"]:
            return "output_reused", "the output of the previous call changed during this one"
        return None

    async def _effects(self, answer: Mapping[str, Any]) -> tuple[str, str] | None:
        """What the call did to its inputs and, in training mode, to buffers."""
        try:
            effects = dict(answer["effects"])
            if not effects["leaves"]:
                return None
        except (KeyError, TypeError, ValueError) as error:
            raise self.pair.candidate.nonsense(self.deadline, error) from error
        message = {"op": "judge_effects", "outputs": effects}
        judged = await self.pair.reference.ask(message, self.deadline, runs_user_code=False)
        for name in judged["missing"]:
            text = f"{name} (ModelNew has none of this name)"
            if text not in self.not_checked:
                self.not_checked.append(text)
        return (str(judged["check"]), str(judged["detail"])) if judged["check"] else None

    async def _repeat(
        self, trial: _Trial, judged: Mapping[str, Any], problem: tuple[str, str] | None
    ) -> tuple[str, str] | None:
        answer = await self.pair.candidate.ask(
            {"op": "again", **trial.message}, self.deadline, "running ModelNew.forward again"
        )
        same = bool(answer.get("same"))
        self.figures.deterministic = same and self.figures.deterministic is not False
        if same or not isinstance(answer.get("outputs"), Mapping):
            return problem
        again = await self._judge(dict(answer["outputs"]), trial.message["index"], first=False)
        if judged["check"] == "values" and again["check"] is None:
            self.figures.deterministic = None  # poisoned memory made the difference
            return "unwritten_output", str(judged["detail"])
        if again["check"] is not None and problem is None:
            return str(again["check"]), f"only in a second run: {again['detail']}"
        return problem
