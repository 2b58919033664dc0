"""Stage timing: both sides interleaved on fresh inputs, cold caches, under the parent's clock.

The parent alternates "go" messages. Each child reads its device's clock around its calls; the
parent's go-to-done time is the outside clock, which a Candidate cannot reach. One sample is as many
calls as it takes to make clocks and messages negligible, the same number on both sides.

A device with a clock of its own sees one queue of work and is held up before each call, so that it
never waits for the host. Some samples are therefore of another kind: calls back to back, from the
first to the end of all work on the device, by the host's clock. They are what the other clocks are
checked against, since work that is hidden from a queue takes its time there.

Every sample is accounted for: its `done` message announces a digest of each output, and only then
the parent draws the calls whose outputs are compared with the Reference's. Seeds and the number of
calls before the first sample are drawn too: nothing tells a Candidate which call will matter.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from musacoder_verifier.backends.base import Watch
from musacoder_verifier.stages.figures import (
    FEWEST_FOR_FIGURES,
    Samples,
    TimingSettings,
    clock_ratio,
    hidden_work,
    interval,
    timing_of,
)
from musacoder_verifier.stages.pair import Pair
from musacoder_verifier.stages.side import Deadline, StageStop, number
from musacoder_verifier.verdict import Failure, Finding, Timing

_MOST_CALLS = 256
_FEWEST_SAMPLES = 11
_MOST_SAMPLES = 301
# Every so many samples one is back to back, of at least so many calls.
_SPAN_EVERY = 4
_SPAN_CALLS = 16
# Comparing outputs must not take more than this share of the budget.
_COMPARING_SHARE = 0.5
# The queue of a device is held up for so much longer than handing a call over takes when nothing
# gets in the way, and for so many nanoseconds at least and at most: a queue that runs empty in the
# middle has the host's hiccups in its times.
_HOLD = 4.0
_LEAST_HOLD_NS = 200e3
_MOST_HOLD_NS = 20e6
# Of each sample so many calls are compared at most, and so many bytes, but at least one call.
_COMPARED_CALLS = 64
_COMPARED_BYTES = 4 << 20
# Outputs of one sample together: all of them are digested.
_OUTPUT_BYTES = 64 << 20
# Below this many bytes the caches decide, and bandwidth says nothing.
_ROOFLINE_BYTES = 8 << 20


@dataclass
class TimingOutcome:
    timing: Timing | None
    failure: Failure | None
    findings: list[Finding]
    unchecked: tuple[str, ...] = ()


async def measure(
    pair: Pair,
    setup: Mapping[str, Any],
    deadline: Deadline,
    settings: TimingSettings,
    watch: Watch,
) -> TimingOutcome:
    """Time both sides. A Candidate that fails here has failed; StageStop is for the Reference."""
    findings: list[Finding] = []
    size = max(int(setup["output_bytes"]), 1)
    session = _Session(pair, deadline, settings, size, watch, findings)
    try:
        problem = await session.run()
    except StageStop as stop:
        if stop.failure.status in ("reference_error", "infra_error"):
            raise
        return TimingOutcome(None, stop.failure, findings)
    if problem is not None:
        return TimingOutcome(None, problem, findings)
    samples, spans = session.samples, session.spans
    if len(samples.candidate) < FEWEST_FOR_FIGURES:
        message = f"five samples did not fit into the {deadline.seconds:g} s of the stage timing"
        return TimingOutcome(None, Failure("timeout", "timing", message), findings)
    clock = clock_ratio(spans or samples, findings)
    if spans is not None:
        hidden_work(samples, spans, findings)
    roofline = await _roofline(pair, setup, samples, deadline, findings)
    conditions = watch.conditions()
    timing = timing_of(samples, settings, clock, roofline, spans, conditions)
    return TimingOutcome(timing, None, findings, conditions.unchecked)


class _Session:
    """Samples of both sides until their ratio is known well enough."""

    def __init__(
        self,
        pair: Pair,
        deadline: Deadline,
        settings: TimingSettings,
        output_bytes: int,
        watch: Watch,
        findings: list[Finding],
    ) -> None:
        self._pair = pair
        self._deadline = deadline
        self._settings = settings
        self._output_bytes = output_bytes
        self._watch = watch
        self._findings = findings
        self._chance = random.SystemRandom()
        self._hold = 0.0
        self._most = min(_MOST_CALLS, max(1, _OUTPUT_BYTES // output_bytes))
        self._comparing = 0.0  # seconds of the last comparison
        self._digests: list[str] = []  # of the Candidate's last sample, as it announced them
        self.samples = Samples(1)
        self.spans: Samples | None = None

    async def run(self) -> Failure | None:
        """Fills `samples`, and `spans` where the device has a clock of its own."""
        await self._calibrate()
        ends = min(time.monotonic() + self._settings.budget, self._deadline.ends - 1.0)
        for index in range(_MOST_SAMPLES):
            done = len(self.samples.candidate)
            if done >= FEWEST_FOR_FIGURES and time.monotonic() > ends:
                break
            narrow = self._settings.narrow
            if done >= _FEWEST_SAMPLES and done % 5 == 0 and interval(self.samples).width < narrow:
                break
            # The second one too, so that there are some however few there are.
            span = self.spans is not None and index % _SPAN_EVERY == 1
            failure = await self._round(index, span)
            if failure is not None:
                return failure
            self._watch.look()
        # Nothing told the Candidate that this one would be the last.
        return await self._round(len(self.samples.candidate), span=False, sure=True)

    async def _calibrate(self) -> None:
        fastest, host = math.inf, 0.0
        own_clock, wanted = False, 0.0
        for side in ("reference", "candidate"):
            seed, rounds = self._chance.randrange(1 << 31), self._chance.randint(5, 9)
            message = {"op": "calibrate", "seed": seed, "rounds": rounds}
            answer = await _ask(self._pair, side, message, self._deadline)
            fastest = min(fastest, max(number(answer["ns"]), 100.0))
            host = max(host, number(answer["host_ns"]))
            if side == "reference":
                # Inputs that come twice in a sample could be recognised.
                self._most = min(self._most, int(answer["most_calls"]))
                own_clock, wanted = bool(answer["own_clock"]), float(answer["sample_ns"])
        drawn = self._chance.uniform(1.0, 1.25) * wanted / fastest
        self.samples = Samples(min(self._most, math.ceil(drawn)))
        if own_clock:
            self._hold = min(max(_HOLD * host, _LEAST_HOLD_NS), _MOST_HOLD_NS)
            self.spans = Samples(min(self._most, max(self.samples.calls, _SPAN_CALLS)))

    async def _round(self, index: int, span: bool, sure: bool = False) -> Failure | None:
        """One sample of each side, and what becomes of the Candidate's outputs; `sure`: they are
        compared however long it takes."""
        into = self.spans if span and self.spans is not None else self.samples
        seed = self._chance.randrange(1 << 31)
        compared = min(into.calls, _COMPARED_CALLS, _COMPARED_BYTES // self._output_bytes)
        calls = self._chance.sample(range(into.calls), max(1, compared))
        if self._settings.take_turns:
            async with self._pair.candidate.turn(self._deadline):
                await self._sample_in_turn(into, "candidate", seed, span)
                fetched = await self._fetch(calls)
            async with self._pair.reference.turn(self._deadline):
                await self._sample_in_turn(into, "reference", seed, span)
                return await self._judge(fetched, seed, calls)
        # Who goes first alternates: neither side always runs on the other's leftovers.
        order = ("reference", "candidate")
        await asyncio.gather(*(self._prepare(into, side, seed) for side in order))
        for side in order if index % 2 == 0 else order[::-1]:
            await self._sample(into, side, span)
        # Drawn when it is all over: outputs so large that comparing them takes the time that
        # samples need are compared for some samples only.
        affordable = _COMPARING_SHARE * self._settings.budget / _FEWEST_SAMPLES
        if index and not sure and self._chance.random() * self._comparing > affordable:
            return None
        started = time.monotonic()
        failure = await self._judge(await self._fetch(calls), seed, calls)
        self._comparing = time.monotonic() - started
        return failure

    async def _prepare(self, into: Samples, side: str, seed: int) -> None:
        message = {"op": "prepare", "seed": seed, "calls": into.calls}
        await _ask(self._pair, side, message, self._deadline)

    async def _sample_in_turn(self, into: Samples, side: str, seed: int, span: bool) -> None:
        await self._prepare(into, side, seed)
        # The memory was given back meanwhile: the first calls ask the driver for it.
        await _ask(self._pair, side, self._go(into, span), self._deadline)
        await self._prepare(into, side, seed)
        await self._sample(into, side, span)

    def _go(self, into: Samples, span: bool) -> dict[str, Any]:
        return {"op": "go", "calls": into.calls, "hold_ns": self._hold, "span": span}

    async def _sample(self, into: Samples, side: str, span: bool) -> None:
        """One sample of what was prepared, from cold caches."""
        await _ask(self._pair, side, {"op": "cool"}, self._deadline)
        start = time.perf_counter()
        answer = await _ask(self._pair, side, self._go(into, span), self._deadline)
        outside = (time.perf_counter() - start) * 1e9
        inside, host = max(number(answer["ns"]), 1.0), max(number(answer["host_ns"]), 1.0)
        into.add(side, inside, outside, host)
        if side == "candidate":
            self._digests = [str(digest) for digest in answer["digests"]]

    async def _fetch(self, calls: list[int]) -> Mapping[str, Any]:
        """Some outputs of the Candidate's timed calls, drawn after they ran."""
        message = {"op": "fetch", "calls": calls}
        answer = await self._pair.candidate.ask(message, self._deadline, "being timed")
        try:
            changes = [(str(rule), str(what)) for rule, what in answer["changes"]]
            outputs = dict(answer["outputs"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._pair.candidate.nonsense(self._deadline, error) from error
        for rule, what in changes:
            self._find(rule, f"replaced or switched while it was timed: {what}")
        return outputs

    async def _judge(
        self, outputs: Mapping[str, Any], seed: int, calls: list[int]
    ) -> Failure | None:
        message = {
            "op": "recheck",
            "seed": seed,
            "calls": calls,
            "digests": [self._digests[call] for call in calls],
            "outputs": outputs,
        }
        judged = await self._pair.reference.ask(message, self._deadline, runs_user_code=False)
        if judged["changed"] is not None:
            text = f"the output of timed call {judged['changed']} changed after it was announced"
            self._find("work-after-return", text)
        if judged["check"] is None:
            return None
        text = f"right when it was checked, wrong when it was timed: {judged['detail']}"
        self._find("wrong-when-timed", text)
        return Failure("wrong_result", "timing", text)

    def _find(self, rule: str, text: str) -> None:
        if all(finding.evidence != text for finding in self._findings):
            self._findings.append(Finding(rule, text))


async def _ask(
    pair: Pair, side: str, message: dict[str, Any], deadline: Deadline
) -> Mapping[str, Any]:
    if side == "reference":
        return await pair.reference.ask(message, deadline)
    answer = await pair.candidate.ask(message, deadline, "being timed")
    try:
        if message["op"] in ("go", "calibrate"):
            number(answer["ns"])
            number(answer["host_ns"])
        if message["op"] == "go" and len(answer["digests"]) != message["calls"]:
            raise TypeError("not one digest for each call")
    except (KeyError, TypeError) as error:
        raise pair.candidate.nonsense(deadline, error) from error
    return answer


async def _roofline(
    pair: Pair,
    setup: Mapping[str, Any],
    samples: Samples,
    deadline: Deadline,
    findings: list[Finding],
) -> dict[str, float]:
    """The time that writing the outputs alone must take, at the device's measured bandwidth;
    nothing for outputs that the caches hold."""
    written = float(setup["output_bytes"])
    if written <= _ROOFLINE_BYTES:
        return {}
    answer = await pair.reference.ask({"op": "bandwidth"}, deadline, runs_user_code=False)
    bandwidth = float(answer["bytes_per_second"])
    floor_ms = 1e3 * written / bandwidth
    per_call = median(samples.candidate) * 1e-6 / samples.calls
    roofline = {
        "bytes_per_second": bandwidth,
        "output_bytes": written,
        "floor_ms": floor_ms,
        "fraction": floor_ms / per_call,
    }
    # Half: bandwidth of pure writes may be above that of copying.
    if per_call < 0.5 * floor_ms:
        text = f"{per_call:.3g} ms is less than writing the output takes ({floor_ms:.3g} ms)"
        findings.append(Finding("roofline", text))
    return roofline
