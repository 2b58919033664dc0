"""`musacoder sites FILE`: what in a file can become a kernel, and what its Workload lacks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from musacoder_lsp.cli import options
from musacoder_lsp.cli.options import Unusable
from musacoder_lsp.sites import Document, Site, find_sites, read_source

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_MOST_OPERATIONS = 6


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "sites",
        help="list what in a file can become a kernel",
        description="Lists the module classes and functions of FILE that compute on tensors.",
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    try:
        source = read_source(path)
    except OSError as error:
        problem = Unusable(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.")
        return options.fail(problem, as_json=arguments.json)
    if source.binary:
        problem = Unusable(f"{path} is no Python source: it holds NUL bytes.")
        return options.fail(problem, as_json=arguments.json)
    document = Document(source.text)
    found = find_sites(source.text, str(path))
    if source.unknown_encoding is not None:
        print(
            f"{path} names the unknown encoding {source.unknown_encoding}; "
            "correct its coding line.",
            file=sys.stderr,
        )
    elif source.damaged:
        print(
            f"{path} is not valid {source.encoding}; add a coding line, or save it as UTF-8.",
            file=sys.stderr,
        )
    if arguments.json:
        report = {
            "file": str(path),
            "encoding": source.encoding,
            "damaged": source.damaged,
            "sites": [_as_json(site, document) for site in found],
        }
        options.print_json(report)
        return 0
    if not found:
        print(f"{path}: no tensor code that could become a kernel.", file=sys.stderr)
    width = max((len(site.name) for site in found), default=0)
    for site in found:
        line = document.line_of(site.header) + 1
        print(f"{path}:{line}: {site.kind:<8} {site.name:<{width}}  {_operations(site)}")
        print(f"{'':<{len(str(path)) + len(str(line)) + 3}}{_workload(site)}")
    return 0


def _operations(site: Site) -> str:
    shown = ", ".join(site.operations[:_MOST_OPERATIONS])
    more = len(site.operations) - _MOST_OPERATIONS
    return f"{shown}, and {more} more" if more > 0 else shown


def _workload(site: Site) -> str:
    if site.problem is not None:
        return site.problem
    if site.missing:
        return f"needs shapes: {', '.join(site.missing)}"
    return f"workload from {site.workload_origin}"


def _as_json(site: Site, document: Document) -> dict[str, Any]:
    line = document.line_of(site.start)
    return {
        "id": site.id,
        "kind": site.kind,
        "name": site.name,
        "line": document.line_of(site.header) + 1,
        "start_line": line + 1,
        "end_line": document.line_of(site.end) + 1,
        "column": site.start - document.line_starts[line] + 1,
        "operations": list(site.operations),
        "workload": site.workload_origin,
        "missing": list(site.missing),
        "problem": site.problem,
        "fingerprint": site.fingerprint,
    }
