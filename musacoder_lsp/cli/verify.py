"""`musacoder verify REFERENCE CANDIDATE`: judge a kernel that somebody else wrote."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from musacoder_verifier import kernelbench, verdict_json
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference, SourceLine
from musacoder_verifier.settings import VerifyOptions
from musacoder_verifier.verdict import Verdict

from musacoder_lsp.cli import options, progress
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.jobs.makers import make_options, make_verifier
from musacoder_lsp.report import verdict_report
from musacoder_lsp.settings import Settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "verify",
        help="compile, check, police and time a kernel against its PyTorch reference",
        description="REFERENCE is a module in KernelBench's convention (Model, get_inputs, "
        "get_init_inputs), CANDIDATE one with ModelNew. Exit code 1: the Verdict is not ok.",
    )
    options.add_pair_arguments(parser)
    options.add_verification_options(parser)
    options.add_kernelbench_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        chosen = options.to_settings(arguments)
        training = arguments.train or arguments.like is not None
        reference = read_reference(arguments.reference, training=training)
        how = _options(arguments, chosen)
        candidate = Candidate(
            options.read_text(arguments.candidate), str(arguments.candidate.resolve())
        )
        folder = options.project_folder(arguments.reference)
        python = options.interpreter_for(chosen, folder).path
    except Unusable as problem:
        return options.fail(problem, as_json=arguments.json)
    verdict = asyncio.run(_verify(reference, candidate, python, chosen, how))
    if arguments.like is not None:
        return _print_result(verdict, as_json=arguments.json)
    if arguments.json:
        print(json.dumps(verdict_json.to_json(verdict), ensure_ascii=False))
    else:
        for line in verdict_report(verdict):
            print(line)
    return options.exit_code(verdict)


def read_reference(path: Path, *, training: bool = False) -> Reference:
    """The file as it stands, with the folder that it lies in to import from. Raises Unusable."""
    text = options.read_text(path)
    absolute = str(path.resolve())
    lines = tuple(SourceLine(absolute, number) for number in range(text.count("\n") + 1))
    roots = (str(path.resolve().parent),)
    return Reference(text, absolute, lines, roots, training)


def _options(arguments: argparse.Namespace, chosen: Settings) -> VerifyOptions:
    """Raises Unusable."""
    if arguments.like is None:
        if arguments.tolerance is not None:
            raise Unusable("--tolerance belongs to --like kernelbench; give both.")
        made: VerifyOptions = make_options(chosen)
        return made
    if arguments.tolerance is not None and not 0 <= arguments.tolerance < math.inf:
        raise Unusable("--tolerance must be a number, zero or above.")
    if arguments.trials < 1:
        raise Unusable("--trials must be at least 1.")
    return kernelbench.options(
        chosen.backend,
        tolerance=arguments.tolerance,
        trials=arguments.trials,
        timing=chosen.timing,
        stage_timeout=chosen.stage_timeout,
    )


def _print_result(verdict: Verdict, *, as_json: bool) -> int:
    """The fields of KernelBench's `KernelExecResult`; unknown fields are ignored by it."""
    result = kernelbench.result(verdict)
    if result is None:
        message = verdict.failure.message if verdict.failure is not None else "no result"
        return options.fail(Unusable(message), as_json=as_json)
    body = {"schema_version": options.SCHEMA_VERSION, **result}
    print(json.dumps(body, ensure_ascii=False, allow_nan=False, indent=None if as_json else 2))
    return options.exit_code(verdict)


async def _verify(
    reference: Reference, candidate: Candidate, python: str, chosen: Settings, how: VerifyOptions
) -> Verdict:
    with progress.shown(Path(candidate.path or "candidate").name) as listen:
        async with make_verifier(python, chosen) as verifier:
            return await verifier.verify(
                reference,
                candidate,
                how,
                lambda event: listen(
                    progress.verifying(event.stage, event.state, event.seconds, event.detail)
                ),
            )
