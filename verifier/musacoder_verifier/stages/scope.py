"""On which other inputs than the Workload's a kernel holds; it decides nothing."""

from __future__ import annotations

import dataclasses

from musacoder_verifier.stages.pair import Pair
from musacoder_verifier.stages.side import Deadline, StageStop, started
from musacoder_verifier.verdict import Correctness

_PROBES = (
    "leading dimension 1",
    "leading dimension + 1",
    "transposed strides",
    "unaligned memory",
    "float64",
    "bfloat16",
)
_SECONDS = 20.0


async def probe(pair: Pair, correctness: Correctness, timeout: float) -> Correctness:
    """Other shapes, strides and dtypes: holds, refuses or wrong; never a failure. Last of all,
    since a kernel that reads beyond its inputs may take its process along."""
    scope: dict[str, str] = {}
    probes = _PROBES
    deadline = Deadline.start("correctness", min(_SECONDS, timeout))
    left = [{"op": "probe", "probe": probe, "seed": pair.seed, "index": probe} for probe in probes]
    asked = None
    for place, probe in enumerate(probes):
        expected = await (asked or pair.reference.ask(left[place], deadline))
        asked = None
        if probe != probes[-1] and not pair.take_turns:
            # While the Candidate runs.
            asked = started(pair.reference.ask(left[place + 1], deadline))
        if "skip" in expected:
            continue
        try:
            answer = await pair.candidate.ask(left[place], deadline, f"trying {probe}")
            judged = await pair.reference.ask(
                {
                    "op": "judge",
                    "outputs": dict(answer["outputs"]),
                    "index": probe,
                    "first": False,
                },
                deadline,
                runs_user_code=False,
            )
        except (KeyError, TypeError, ValueError):
            scope[probe] = "wrong"
            continue
        except StageStop as stop:
            if stop.failure.status == "infra_error":
                raise
            scope[probe] = "wrong" if stop.lost else "refuses"
            if stop.lost or "process" in stop.failure.message or stop.failure.status == "timeout":
                break  # it is dead; what is left was not tried
            continue
        scope[probe] = "holds" if judged["check"] is None else "wrong"
    return dataclasses.replace(correctness, scope=scope)
