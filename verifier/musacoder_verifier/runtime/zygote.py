"""Start of the runtime worker: `python zygote.py CONTROL_FD` in the user's interpreter.

Kept free of newer syntax (annotations too), so that an interpreter that is too old says so.
"""

import sys

TOO_OLD = 64  # exit status, known to musacoder_verifier.worker


def main():  # type: () -> None
    if sys.version_info < (3, 9):
        sys.stderr.write("%d.%d\n" % sys.version_info[:2])  # noqa: UP031
        sys.exit(TOO_OLD)
    import os

    folder = os.path.dirname(os.path.abspath(__file__))
    if folder not in sys.path:  # PYTHONSAFEPATH leaves it out
        sys.path.insert(0, folder)
    from musacoder_runtime.serve import serve

    serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
