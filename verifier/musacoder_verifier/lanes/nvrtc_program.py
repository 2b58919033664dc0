"""Compiles one source with NVRTC; started by file path, by `lanes.native`.

`nvrtc_program.py LIBRARY SOURCE NAME TARGET OPTION...`: the kernels go to TARGET, what NVRTC says
to standard output. Exit code 0: compiled; 1: the source is wrong; 2: an option is; 3: NVRTC itself
failed. A process of its own: a crash of the compiler, or its appetite, ends nothing else.
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

_INVALID_OPTION, _COMPILATION = 5, 6  # of nvrtcResult


def main(library: str, source: str, name: str, target: str, options: list[str]) -> int:
    # Packages link the two without a search path: the first finds what is loaded already.
    for builtins in sorted(Path(library).parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins))
    nvrtc = ctypes.CDLL(library)
    program = ctypes.c_void_p()
    text = Path(source).read_bytes().replace(b"\0", b" ")
    status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name.encode(), 0, None, None)
    if status == 0:
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), words)
        log = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        sys.stdout.buffer.write(log.rstrip(b"\0"))
    if status != 0:
        return {_COMPILATION: 1, _INVALID_OPTION: 2}.get(status, 3)
    kernels = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    if not kernels:
        return 3
    Path(target).write_bytes(kernels)
    return 0


def _bytes(
    measure: Callable[..., int], read: Callable[..., int], program: ctypes.c_void_p
) -> bytes:
    size = ctypes.c_size_t()
    if measure(program, ctypes.byref(size)) != 0:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    return buffer.raw if read(program, buffer) == 0 else b""


if __name__ == "__main__":
    library, source, name, target, *options = sys.argv[1:]
    sys.exit(main(library, source, name, target, options))
