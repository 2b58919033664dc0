"""`musacoder`: one sub-command per file of this package."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence

from musacoder_lsp import __version__

# In the order of the help text.
COMMANDS = ("demo", "sites", "generate", "verify", "profile", "doctor", "bench", "lsp")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="musacoder",
        description="Native kernels for PyTorch code: written, verified and timed on this machine.",
        epilog="Exit codes: 0 success; 1 the honest negative; 2 usage or environment.",
    )
    parser.add_argument("--version", action="version", version=f"musacoder {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"musacoder_lsp.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files and a Candidate's messages hold what no encoding has, a lone surrogate.
            stream.reconfigure(errors="backslashreplace")
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has enough. Python would complain once more at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        # Left to Python it would end with 1, which here says that a kernel is no good.
        traceback.print_exc()
        print(
            f"musacoder: a fault of musacoder itself ({_named(problem)}); please report the lines "
            "above.",
            file=sys.stderr,
        )
        return 2
    return code


def _named(problem: Exception) -> str:
    return traceback.format_exception_only(problem)[-1].strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
