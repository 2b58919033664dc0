"""`musacoder profile REFERENCE CANDIDATE`: why a kernel is as fast as it is."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from musacoder_verifier import verdict_json
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.profile import vendor
from musacoder_verifier.profile.counters import NoCounters, merged
from musacoder_verifier.reference import Reference
from musacoder_verifier.verdict import Verdict
from musacoder_verifier.verifier import Verifier
from musacoder_verifier.worker import WorkerError

from musacoder_lsp.cli import options, progress
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.cli.verify import read_reference
from musacoder_lsp.jobs.makers import make_options, make_verifier
from musacoder_lsp.report import hint_report, verdict_report
from musacoder_lsp.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "profile",
        help="verify a kernel, then say what bounds it and what would make it faster",
        description="Counts the least bytes and operations from the operator graph, holds them "
        "against measured ceilings, and adds hardware counters where this user may read them "
        "(ncu on NVIDIA GPUs). Exit code 1: the Verdict is not ok, so nothing was profiled.",
    )
    options.add_pair_arguments(parser)
    parser.add_argument(
        "--counters",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read hardware counters with the vendor's profiler",
    )
    options.add_verification_options(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Profiled:
    """`problem` says why there are no hardware counters, None where there are, or none were asked
    for."""

    verdict: Verdict
    problem: str | None = None


def run(arguments: argparse.Namespace) -> int:
    try:
        if not arguments.timing:
            raise Unusable("a kernel that is not timed has no profile; leave out --no-timing.")
        chosen = options.to_settings(arguments)
        reference = read_reference(arguments.reference, training=arguments.train)
        candidate = Candidate(
            options.read_text(arguments.candidate), str(arguments.candidate.resolve())
        )
        folder = options.project_folder(arguments.reference)
        python = options.interpreter_for(chosen, folder).path
    except Unusable as problem:
        return options.fail(problem, as_json=arguments.json)
    found = asyncio.run(_profile(reference, candidate, python, chosen, arguments.counters))
    if arguments.json:
        body = verdict_json.to_json(found.verdict)
        options.print_json(
            {"profile": body["profile"], "counters_problem": found.problem, "verdict": body}
        )
    else:
        for line in _report(found):
            print(line)
    return options.exit_code(found.verdict)


async def _profile(
    reference: Reference, candidate: Candidate, python: str, chosen: Settings, counters: bool
) -> Profiled:
    verify = make_options(chosen)
    with progress.shown(Path(candidate.path or "candidate").name) as listen:
        async with make_verifier(python, chosen) as verifier:
            assert isinstance(verifier, Verifier)
            verdict = await verifier.verify(
                reference,
                candidate,
                verify,
                lambda event: listen(
                    progress.verifying(event.stage, event.state, event.seconds, event.detail)
                ),
            )
            if verdict.profile is None or not counters:
                return Profiled(verdict)
            try:
                worker = await verifier.worker(verify.backend)
                launches = await vendor.count(
                    worker, verifier.settings, reference, candidate, verify
                )
            except (NoCounters, WorkerError) as problem:
                return Profiled(verdict, str(problem))
            return Profiled(replace(verdict, profile=merged(verdict.profile, launches)))


def _report(found: Profiled) -> list[str]:
    lines = verdict_report(found.verdict)
    if found.verdict.profile is not None:
        lines += hint_report(found.verdict.profile, found.problem)
    return lines
