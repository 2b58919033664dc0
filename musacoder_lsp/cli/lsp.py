"""`musacoder lsp`, also installed as `musacoder-lsp`: the language server over stdio."""

from __future__ import annotations

import argparse
import os
import sys

from musacoder_lsp.transport import claim_stdin, claim_stdout


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "lsp",
        help="run the language server over stdio",
        description="Runs the language server over stdin and stdout, for an editor to start.",
    )
    # What clients pass by habit; stdio is the only way, so it changes nothing.
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--clientProcessId", dest="client", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    serve()
    return 0


def serve() -> None:
    """Never returns: the process ends here, whatever a thread or an exit handler would still do.

    The descriptors are claimed before anything heavy is imported, because imports may print.
    """
    write_fd = claim_stdout()
    read_fd = claim_stdin()
    from musacoder_lsp.server import run as run_server

    code = run_server(read_fd, write_fd)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """The console script `musacoder-lsp`; ignores the arguments that clients add by habit."""
    if "--version" in sys.argv[1:]:
        from musacoder_lsp import __version__

        print(f"musacoder-lsp {__version__}")
        return
    serve()


if __name__ == "__main__":
    main()
