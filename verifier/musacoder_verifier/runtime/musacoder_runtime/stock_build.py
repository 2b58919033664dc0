"""Builds one extension with the real `load_inline`, without loading it; started by file path.

`stock_build.py ORDER`: ORDER is a JSON file with the arguments of `load_inline`. Exit code 0: it is
built; 1: the compiler refused it, its output stands on stdout; 3: the build could not be tried, the
last line says why.
"""

from __future__ import annotations

import json
import sys


def main(order_file: str) -> int:
    with open(order_file, encoding="utf-8") as file:
        order = json.load(file)
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        print(f"torch.utils.cpp_extension cannot be imported: {error}")
        return 3
    if not cpp_extension.is_ninja_available():
        print(f"ninja is missing: install it with {sys.executable} -m pip install ninja")
        return 3
    # Only the build is wanted: loading would run the extension's own code here.
    cpp_extension._import_module_from_library = lambda *_: None
    if not order["cuda_sources"]:
        order["cuda_sources"] = None
    # Verbose, torch passes on what the compilers print: the device's assembler reports each kernel.
    verbose = order["cuda_sources"] is not None
    try:
        cpp_extension.load_inline(verbose=verbose, **order)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        print(error)
        return 1
    except OSError as error:
        print(f"the extension cannot be built: {error}")
        return 3
    return 0


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: nothing of ours is imported here
    sys.exit(main(sys.argv[1]))
