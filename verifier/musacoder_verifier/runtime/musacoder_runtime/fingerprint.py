"""A fingerprint of a tensor's bytes that the device computes where they lie.

Copying gigabytes to the host and hashing them there takes seconds; two passes on a GPU take
milliseconds. It tells apart what differs by accident or by a cheat that does not know of it. It is
no cryptographic digest: a process that aims at it can meet it, and such a process could replace the
code that computes it just as well.
"""

from __future__ import annotations

import torch

# Odd 64-bit multipliers with no structure, two lanes: from the fractions of sqrt(2), sqrt(3),
# sqrt(5), sqrt(7), as two's complement.
_LANES = (
    (0x6A09E667F3BCC909, -0x449829A37BDA5D25, 0x3C6EF372FE94F82B),
    (-0x5AB00AC5A0E14B81, 0x510E527FADE682D1, -0x64FA9773D4C193E1),
)
_CHUNK_BYTES = {"cpu": 1 << 20}
_DEVICE_CHUNK_BYTES = 1 << 27
_MASK = (1 << 64) - 1


def of(tensor: torch.Tensor) -> str:
    """Hexadecimal; the same on every device for the same values in the same order. Shape and dtype
    are not part of it."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    size = flat.numel() * flat.element_size()
    sums = [size, size]
    per_chunk = _CHUNK_BYTES.get(flat.device.type, _DEVICE_CHUNK_BYTES) // flat.element_size()
    place = 0
    for start in range(0, flat.numel(), per_chunk):
        words = _words(flat[start : start + per_chunk])
        places = torch.arange(place, place + words.numel(), device=words.device)
        place += words.numel()
        for lane, (first, second, third) in enumerate(_LANES):
            mixed = words * first
            mixed += places * second
            mixed ^= mixed >> 31
            mixed *= third
            mixed ^= mixed >> 29
            sums[lane] = (sums[lane] + int(mixed.sum())) & _MASK
    return f"{sums[0]:016x}{sums[1]:016x}"


def _words(chunk: torch.Tensor) -> torch.Tensor:
    """The bytes as 64-bit words, zeros behind the last one, in memory of their own: what comes in
    may begin at any byte."""
    size = chunk.numel() * chunk.element_size()
    room = torch.zeros(-(-size // 8), dtype=torch.int64, device=chunk.device)
    room.view(torch.uint8)[:size].copy_(chunk.view(torch.uint8))
    return room
