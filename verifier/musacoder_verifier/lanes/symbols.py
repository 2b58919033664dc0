"""What a compiled extension can call beside its own code, as its symbol table says.

A fast-lane object carries the names of the PyTorch operators it calls in a section of its own, a
stock one names each as an undefined symbol. Vendor libraries, functions that find code at run time
and functions that change this process's own code are undefined symbols in both.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

_SECTION = ".musacoder.operators"
_OPERATOR = re.compile(r"^_ZN2at4_ops(\d+)")
# The two that the C ABI calls directly.
_DIRECT = {"mc_empty": "aten::empty.memory_format", "mc_empty_like": "aten::empty_like"}
# Libraries that compute: of the accelerator's vendor, and BLAS, LAPACK, MKL, oneDNN on the host.
# `curand_kernel.h` is device code without symbols: of curand only the host library is meant.
_VENDOR = re.compile(
    r"""^(?: cublas\w* | cudnn\w* | cusparse\w* | cusolver\w* | cufft\w* | curand[A-Z]\w*
      | cutensor\w* | nppi\w* | mublas\w* | mudnn\w* | musparse\w* | mufft\w* | _ZN4musa3dnn\w*
      | cblas_\w+ | LAPACKE_\w+ | openblas_\w+ | mkl_\w+ | MKL_\w+ | v[sdcz][A-Z]\w+ | vml\w+
      | dnnl_\w+ | _ZNK?4dnnl\w+
      | [sdcz](?: gemm | gemmt | gemv | ger[uc]? | axpy | dot[uc]? | scal | symm | symv | syrk
               | syr2k | trsm | trsv | trmm | trmv | getr[fs] | potr[fs] | gesv | gesvd | gesdd
               | syevd? | geqrf)_
    )$""",
    re.VERBOSE,
)
# What a library finds at run time, its symbol table does not name.
_LOADERS = frozenset(
    ["dlopen", "dlmopen", "dlsym", "dlvsym", "__libc_dlopen_mode", "__libc_dlsym",
     "PyRun_SimpleString", "PyRun_String", "nvrtcCompileProgram", "cuModuleLoad",
     "cuModuleLoadData", "cuModuleLoadDataEx", "cuLibraryLoadData", "cuLibraryLoadFromFile",
     "muModuleLoadData"]
)  # fmt: skip
# An honest kernel changes neither its process's code nor its memory map.
_REWRITERS = frozenset(
    ["mprotect", "pkey_mprotect", "dl_iterate_phdr", "process_vm_writev", "process_vm_readv",
     "ptrace", "mremap", "userfaultfd"]
)  # fmt: skip
_EM_CUDA = 190  # the machine of an image that a driver loads as it is
_DEVICE_CODE = (".nv_fatbin", "__nv_relfatbin", ".mt_fatbin")
_LAUNCHES = re.compile(r"^(?:cudaLaunchKernel|__cudaPushCallConfiguration|musaLaunchKernel)\w*$")
_SWITCH = re.compile(
    r"^_ZNK?2at\d+(enableRecordFunction|set_record_function_tls_|clearCallbacks|disableCallback"
    r"|removeCallback|clearGlobalCallbacks|clearThreadLocalCallbacks|(?:Disable)?RecordFunctionGuard)"
)


def operators_called(path: str | Path) -> tuple[str, ...]:
    """Names such as `aten::add.Tensor`, sorted. A stock object tells the C++ name of the operator's
    struct only, `add_Tensor`: its first part is the operator, up to the overload.

    Raises OSError, and ValueError where the file is no 64-bit ELF object.
    """
    elf = _Elf(Path(path).read_bytes())
    found = {name.removesuffix(".") for name in elf.strings(_SECTION)}
    for symbol in elf.undefined():
        match = _OPERATOR.match(symbol)
        if match is not None:
            start = match.end()
            found.add(f"aten::{symbol[start : start + int(match[1])]}")
        elif symbol in _DIRECT:
            found.add(_DIRECT[symbol])
    return tuple(sorted(found))


def vendor_functions(path: str | Path) -> tuple[str, ...]:
    """Functions of cuBLAS, cuDNN, MKL and the like that the object calls, sorted."""
    elf = _Elf(Path(path).read_bytes())
    return tuple(sorted({symbol for symbol in elf.undefined() if _VENDOR.match(symbol)}))


def code_loaders(path: str | Path) -> tuple[str, ...]:
    """Functions that find code at run time and that the object calls, sorted. Nothing for an object
    that carries the device's runtime in itself: that runtime calls them, too."""
    elf = _Elf(Path(path).read_bytes())
    names = set(elf.undefined())
    if elf.has(*_DEVICE_CODE) and not any(_LAUNCHES.match(name) for name in names):
        return ()
    return tuple(sorted(names & _LOADERS))


def code_rewriters(path: str | Path) -> tuple[str, ...]:
    """Functions that change the code or the memory map of this process and that the object calls,
    sorted."""
    return tuple(sorted(set(_Elf(Path(path).read_bytes()).undefined()) & _REWRITERS))


def has_device_code(path: str | Path) -> bool:
    """Whether the object carries code for an accelerator, or is nothing else."""
    elf = _Elf(Path(path).read_bytes())
    return elf.machine == _EM_CUDA or elf.has(*_DEVICE_CODE)


def sections(path: str | Path, prefix: str) -> list[tuple[str, bytes]]:
    """Name and contents of the sections whose names begin so, in the order of the file."""
    return list(_Elf(Path(path).read_bytes()).contents(prefix))


def recording_switches(path: str | Path) -> tuple[str, ...]:
    """Functions of PyTorch that switch the recording of operators off, and that the object calls,
    sorted; named without their namespace `at`."""
    elf = _Elf(Path(path).read_bytes())
    matches = (_SWITCH.match(symbol) for symbol in elf.undefined())
    return tuple(sorted({match[1] for match in matches if match is not None}))


class _Elf:
    """As much of a 64-bit little-endian ELF file as its names need."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit ELF object")
        self._data = data
        self.machine = int.from_bytes(data[18:20], "little")
        try:
            (offset,) = struct.unpack_from("<Q", data, 0x28)
            size, count, names = struct.unpack_from("<HHH", data, 0x3A)
            rows = [
                struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)
            ]
            self._sections = [
                (self._text(rows[names][4] + row[0]), row[4], row[5], row[6]) for row in rows
            ]
        except (struct.error, IndexError) as error:
            raise ValueError("damaged ELF object") from error

    def _text(self, offset: int) -> str:
        end = self._data.index(b"\0", offset)
        return self._data[offset:end].decode("utf-8", "replace")

    def has(self, *sections: str) -> bool:
        return any(row[0] in sections for row in self._sections)

    def contents(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Sections whose names begin with `prefix`."""
        for name, offset, size, _ in self._sections:
            if name.startswith(prefix):
                yield name, self._data[offset : offset + size]

    def strings(self, section: str) -> Iterator[str]:
        """The zero-terminated strings of a section."""
        for name, offset, size, _ in self._sections:
            if name == section:
                for text in self._data[offset : offset + size].split(b"\0"):
                    if text:
                        yield text.decode("utf-8", "replace")

    def undefined(self) -> Iterator[str]:
        """The names of undefined dynamic symbols."""
        for name, offset, size, link in self._sections:
            if name != ".dynsym":
                continue
            strings = self._sections[link][1]
            for start in range(offset, offset + size, 24):
                text, _, _, index = struct.unpack_from("<IBBH", self._data, start)
                if index == 0 and text:
                    yield self._text(strings + text)
