"""`musacoder bench faults`: twenty kinds of misbehaviour in random order between honest kernels.

After each one an honest Candidate is verified by the same Verifier: its Verdict must be what it was
before, within seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from musacoder_verifier.backends import registry
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.settings import VerifierSettings, VerifyOptions
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier

from musacoder_lsp.cli import options
from musacoder_lsp.cli.bench import lines, scores
from musacoder_lsp.cli.bench.misbehaviours import HONEST, KINDS, REFERENCE, candidate
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.places import cache_folder
from musacoder_lsp.settings import Settings

KIND = "fault"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "faults",
        help="misbehaving Candidates between honest ones",
        description="Exit code 1: an honest Verdict was changed, or misbehaviour was called ok.",
    )
    add = parser.add_argument
    add("--backend", default="cpu")
    add("--repetitions", type=int, default=5, metavar="N", help="of each kind (default: 5)")
    add("--seed", type=int, default=1, help="of the order (default: 1)")
    add("--stage-timeout", type=float, default=8.0, metavar="SECONDS")
    add("--python", metavar="PATH", help="the interpreter that has torch")
    add("--seconds", type=float, metavar="S", help="begin nothing new after so long; see --lines")
    add("--lines", type=Path, metavar="FILE", help="keep results; go on where FILE ends")
    add("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        found = asyncio.run(_measure(arguments))
    except Unusable as problem:
        return options.fail(problem, as_json=arguments.json)
    changed = sum(not line["honest_unchanged"] for line in found)
    clean = sum(line["status"] == "ok" for line in found)
    if arguments.json:
        report = {"tried": len(found), "honest_changed": changed, "called_ok": clean}
        options.print_json({"results": report, "lines": found})
    else:
        statuses = Counter((str(line["misbehaviour"]), str(line["status"])) for line in found)
        rows = [{"name": n, "status": s, "times": c} for (n, s), c in sorted(statuses.items())]
        print(scores.markdown(rows))
        print(f"{len(found)} tried; {changed} honest Verdicts changed; {clean} called ok.")
    return 1 if changed or clean or len(found) < len(KINDS) * arguments.repetitions else 0


async def _measure(arguments: argparse.Namespace) -> list[lines.Line]:
    device = registry.backend(arguments.backend).device_name()
    order = [(name, turn) for name in KINDS for turn in range(arguments.repetitions)]
    random.Random(arguments.seed).shuffle(order)
    known = _known(arguments.lines, arguments.backend)
    ends = time.monotonic() + (arguments.seconds or 1e9)
    settings = VerifierSettings(
        python=options.interpreter_for(Settings(python=arguments.python), Path.cwd()).path,
        cache_dir=cache_folder(), stage_timeout=arguments.stage_timeout, threads=1,
    )  # fmt: skip
    how = VerifyOptions(backend=arguments.backend, policy="native-only", timing=False, scope=False)
    reference = Reference(REFERENCE)
    good = Candidate(candidate(HONEST, arguments.backend))
    async with Verifier(settings) as verifier:
        first = await verifier.verify(reference, good, how)
        if first.status != "ok":
            said = first.failure.message if first.failure is not None else first.status
            raise Unusable(f"the honest Candidate is not ok on {arguments.backend}: {said}.")
        for name, turn in order:
            if (name, turn) in known or time.monotonic() > ends:
                continue
            bad = Candidate(candidate(KINDS[name], arguments.backend))
            verdict = await verifier.verify(reference, bad, how)
            begun = time.monotonic()
            after = await verifier.verify(reference, good, how)
            body: dict[str, Any] = {
                "backend": arguments.backend, "misbehaviour": name, "turn": turn,
                "status": verdict.status, "wall_seconds": verdict.wall_seconds,
                "failure": verdict.failure.message if verdict.failure is not None else None,
                "honest_unchanged": _facts(after) == _facts(first),
                "honest_status": after.status,
                "recovery_seconds": time.monotonic() - begun,
            }  # fmt: skip
            known[name, turn] = lines.append(arguments.lines, KIND, device, body)
            print(f"{name}: {verdict.status}, then {after.status}", file=sys.stderr, flush=True)
    return [known[item] for item in order if item in known]


def _facts(verdict: Verdict) -> tuple[object, ...]:
    """What must not change; timings may."""
    correctness, legality = verdict.correctness, verdict.legality
    return (
        verdict.status,
        correctness.passed_trials if correctness is not None else None,
        correctness.max_abs_error if correctness is not None else None,
        legality.findings if legality is not None else None,
        verdict.reward,
    )


def _known(path: Path | None, backend: str) -> dict[tuple[str, int], lines.Line]:
    if path is None or not path.exists():
        return {}
    return {
        (str(line["misbehaviour"]), int(line["turn"])): line
        for line in lines.read([path], KIND)
        if line["backend"] == backend
    }
