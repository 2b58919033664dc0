"""`musacoder bench`: one file per measurement."""

from __future__ import annotations

import argparse
import importlib

MEASUREMENTS = (
    "latency",
    "compile",
    "kernelbench",
    "agreement",
    "evaluators",
    "faults",
    "report",
    "timing",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("bench", help="measure this machine")
    measurements = parser.add_subparsers(dest="measurement", metavar="WHAT", required=True)
    for name in MEASUREMENTS:
        importlib.import_module(f"musacoder_lsp.cli.bench.{name}").add_parser(measurements)
