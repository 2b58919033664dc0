"""Occupancy: how many warps of a kernel a multiprocessor holds at once, of how many it could.

Rules and per-architecture limits after the comments and tables of NVIDIA's `cuda_occupancy.h` (CUDA
13.0) and the table "Technical Specifications per Compute Capability" of the CUDA programming guide.
An architecture that stands in neither gives no figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WARP = 32
_REGISTER_UNIT = 256  # registers, given to a warp at a time
_PARTITIONS = 4  # of a multiprocessor, each with its share of the registers
_REGISTERS = 65536

Limiter = Literal["threads", "blocks", "registers", "shared memory"]


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """`shared` is the largest carve-out in bytes, `reserved` what the system takes of it for each
    block, `unit` its allocation granularity."""

    threads: int
    blocks: int
    shared: int
    reserved: int = 1024
    unit: int = 128


# By compute capability times ten.
MULTIPROCESSORS = {
    70: Multiprocessor(2048, 32, 96 << 10, 0, 256),
    75: Multiprocessor(1024, 16, 64 << 10, 0, 256),
    80: Multiprocessor(2048, 32, 164 << 10),
    86: Multiprocessor(1536, 16, 100 << 10),
    87: Multiprocessor(1536, 16, 164 << 10),
    89: Multiprocessor(1536, 24, 100 << 10),
    90: Multiprocessor(2048, 32, 228 << 10),
    100: Multiprocessor(2048, 32, 228 << 10),
    103: Multiprocessor(2048, 32, 228 << 10),
    120: Multiprocessor(1536, 24, 100 << 10),
    121: Multiprocessor(1536, 24, 100 << 10),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`fraction` of the warps that fit; `limiter` is what keeps a further block out."""

    blocks: int
    fraction: float
    limiter: Limiter


def occupancy(
    capability: int, block_threads: int, registers: int, shared_bytes: int
) -> Occupancy | None:
    """Of a kernel of `block_threads` threads a block, `registers` a thread and `shared_bytes` of
    static and dynamic shared memory; `capability` is 90 for 9.0. None for an unknown one, and for
    a block that does not fit at all."""
    processor = MULTIPROCESSORS.get(capability)
    if processor is None or block_threads < 1:
        return None
    warps = -(-block_threads // WARP)
    fits: dict[Limiter, int] = {
        "threads": processor.threads // WARP // warps,
        "blocks": processor.blocks,
    }
    if registers > 0:
        of_warp = _rounded(registers * WARP, _REGISTER_UNIT)
        fits["registers"] = _REGISTERS // _PARTITIONS // of_warp * _PARTITIONS // warps
    if shared_bytes > 0:
        of_block = _rounded(shared_bytes + processor.reserved, processor.unit)
        fits["shared memory"] = processor.shared // of_block
    limiter = min(fits, key=lambda name: fits[name])
    blocks = fits[limiter]
    if blocks == 0:
        return None
    return Occupancy(blocks, blocks * warps * WARP / processor.threads, limiter)


def capability(architecture: str) -> int | None:
    """90 of `sm_90`, `sm_90a`, `compute_90` or `90`."""
    digits = "".join(letter for letter in architecture.rpartition("_")[2] if letter.isdigit())
    return int(digits) if digits else None


def _rounded(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
