"""Which operators of PyTorch, and which vendor libraries, a compiled extension can call.

Read from the object itself: a fast-lane object carries the names of the operators it calls in a
section of its own, a stock one names each as an undefined symbol.
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
_VENDOR = re.compile(r"^(?:cublas|cudnn|cusparse|cusolver|cufft|mublas|mudnn|cblas_|mkl_|dnnl_)\w*")

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
