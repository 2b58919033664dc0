"""`musacoder generate FILE:LINE[:COL]`: from a line of source to a verified kernel."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from musacoder_inference.engines.base import BackendName
from musacoder_inference.registry import ENGINES
from musacoder_verifier.candidate import Provenance
from musacoder_verifier.reference import Reference

from musacoder_lsp.assistant import Assistant, AssistantOptions, Trajectory
from musacoder_lsp.cli import options, progress
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.jobs import trajectory_json
from musacoder_lsp.jobs.makers import REAL
from musacoder_lsp.places import CannotWrite, Place, generated_place, write_generated
from musacoder_lsp.report import trajectory_report
from musacoder_lsp.settings import Settings
from musacoder_lsp.sites.reference.override import override_inputs

if TYPE_CHECKING:
    from musacoder_lsp.sites import Site, SiteIndex, Unbuildable

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_TARGET = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?")


@dataclass(frozen=True, slots=True)
class Target:
    """A place in a file; `line` and `column` are 1-based, the column counts code points."""

    file: Path
    line: int
    column: int | None


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "generate",
        help="write, verify and time a kernel for a place in a file",
        description="Makes a kernel for the class or function around FILE:LINE, or, with a "
        "column, for the operation there. Exit code 1: no correct kernel came out.",
    )
    parser.add_argument("target", metavar="FILE:LINE[:COL]")
    parser.add_argument("--engine", choices=ENGINES, default=Settings().engine)
    parser.add_argument(
        "--workload", metavar="TEXT", help="inputs, such as 'x: f32[1024, 4096], n: 3'"
    )
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="where sources go")
    options.add_verification_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        target = parse_target(arguments.target)
        chosen = options.to_settings(arguments)
        folder = options.project_folder(target.file)
        site, reference = reference_at(target, folder, arguments.workload)
        place = _place(arguments.output, folder)
        python = options.interpreter_for(chosen, folder).path
        trajectory = asyncio.run(_generate(site, reference, target.file, python, chosen, place))
    except (Unusable, CannotWrite, ValueError, ImportError) as problem:
        return options.fail(Unusable(str(problem)), as_json=arguments.json)
    if arguments.json:
        options.print_json(to_json(site, chosen, trajectory))
    else:
        _print(site, trajectory)
    shown = trajectory.best or trajectory.last
    return options.exit_code(shown.verdict if shown else None)


def parse_target(text: str) -> Target:
    """Raises Unusable."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise Unusable(f"{text} names no place; write FILE:LINE or FILE:LINE:COL.")
    column = match["column"]
    return Target(Path(match["file"]), int(match["line"]), int(column) if column else None)


def reference_at(target: Target, folder: Path, workload: str | None) -> tuple[Site, Reference]:
    """The Site at a place and its Reference. Raises Unusable."""
    from musacoder_lsp.sites import SiteIndex, Unbuildable

    text = options.read_text(target.file)
    index = SiteIndex(text, str(target.file))
    site = _site_at(index, target)
    built = _build(site, index, folder)
    if workload is not None and isinstance(built, Reference):
        built = override_inputs(built, workload)
    elif workload is not None and isinstance(built, Unbuildable) and built.missing:
        site, built = _annotated(site, index, workload, folder)
    if isinstance(built, Unbuildable):
        missing = f" (missing: {', '.join(built.missing)})" if built.missing else ""
        raise Unusable(f"{target.file}:{target.line}: {built.reason}{missing}")
    return site, built


def _site_at(index: SiteIndex, target: Target) -> Site:
    from musacoder_lsp.sites import Refused

    starts = index.document.line_starts
    if not 1 <= target.line <= len(starts):
        raise Unusable(f"{target.file} has {len(starts)} lines; there is no line {target.line}.")
    start = starts[target.line - 1]
    if target.column is not None:
        found = index.call_at(start + target.column - 1)
        if isinstance(found, Refused):
            raise Unusable(f"{target.file}:{target.line}:{target.column}: {found.reason}")
        return found
    # A definition starts behind its line's indentation.
    line = index.document.line_text(target.line - 1)
    site = index.site_at(start + len(line) - len(line.lstrip()))
    if site is None:
        raise Unusable(
            f"Line {target.line} of {target.file} lies in no class or function that computes "
            f"on tensors; `musacoder sites {target.file}` lists those that do."
        )
    return site


def _build(site: Site, index: SiteIndex, folder: Path) -> Reference | Unbuildable:
    from musacoder_lsp.sites import build_reference

    path = str(Path(index.path or "").resolve())
    return build_reference(site, index.text, path, roots=(folder,), tree=index.tree)


def _annotated(
    site: Site, index: SiteIndex, workload: str, folder: Path
) -> tuple[Site, Reference | Unbuildable]:
    """As if the workload stood in a comment above the Site; the file is not touched."""
    from musacoder_lsp.sites import Edit, Refused

    document = index.document
    header = document.line_of(site.header)
    line = document.line_text(header)
    indent = line[: len(line) - len(line.lstrip())]
    comment = f"{indent}# musacoder: {workload}{document.newline}"
    place = document.line_start(site.header)
    index.update([Edit(place, place, comment)])
    if site.kind in ("module", "function"):
        found = next((each for each in index.sites() if each.id == site.id), None)
    else:
        call = index.call_at(site.start + len(comment))
        found = None if isinstance(call, Refused) else call
    if found is None:
        raise Unusable(f"--workload `{workload}` cannot be read as an annotation of {site.name}.")
    built = _build(found, index, folder)
    if isinstance(built, Reference):
        # The user's file lacks the comment's line.
        lines = tuple(
            replace(each, line=each.line - 1) if each and each.line > header else each
            for each in built.lines
        )
        built = replace(built, lines=lines)
    return found, built


def _place(output: Path | None, folder: Path) -> Place:
    if output is None:
        return generated_place(folder)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Unusable(f"{output} cannot be made: {problem.strerror or problem}.") from problem
    return Place(output)


async def _generate(
    site: Site, reference: Reference, file: Path, python: str, chosen: Settings, place: Place
) -> Trajectory:
    async def write(text: str, provenance: Provenance) -> Path:
        name = f"{site.name}_{chosen.family}"
        return await asyncio.to_thread(write_generated, place, str(file), name, text)

    assistant_options = AssistantOptions(
        backend=cast(BackendName, chosen.family),
        verify=REAL.options(chosen),
        max_turns=chosen.max_turns,
        samples=chosen.samples,
        engine_options=chosen.engine_options,
    )
    engine = REAL.engine(chosen)
    with progress.shown(site.name) as listen:
        async with REAL.verifier(python, chosen) as verifier:
            assistant = Assistant(engine, verifier, write)
            return await assistant.run(reference, assistant_options, listen)


def to_json(site: Site, chosen: Settings, trajectory: Trajectory) -> dict[str, Any]:
    body = trajectory_json.to_json(trajectory)
    best = body["best"]
    return {
        "site": {"id": site.id, "kind": site.kind, "name": site.name},
        "backend": chosen.backend,
        "engine": trajectory.engine,
        "model": trajectory.model,
        "turns": body["turns"],
        "best": None if best is None else body["turns"][best],
        "reason": trajectory.reason,
    }


def _print(site: Site, trajectory: Trajectory) -> None:
    print(f"{site.kind} {site.name}")
    for line in trajectory_report(trajectory):
        print(line)
    shown = trajectory.best or trajectory.last
    if shown is not None and shown.candidate.path is not None:
        print(f"written to {shown.candidate.path}")
    elif trajectory.reason:
        print(trajectory.reason, file=sys.stderr)
