"""Nested tensors as a JSON structure plus raw bytes in a memory file.

Outputs of a Candidate cross processes this way. Nothing is pickled: what an untrusted process
wrote is read back as plain bytes of announced dtype and shape, or refused. Reading copies with
`pread`, so a writer that shrinks the file causes a short read and no bus error.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import threading
from collections.abc import Mapping
from typing import Any, Callable, Dict, List, Tuple

import torch

from musacoder_runtime import fingerprint

Tree = Any
_CHUNK = 1 << 28
# Between a device and a memory file values go through this much memory that the device can reach by
# itself: the system would first have to find gigabytes of new pages. Each of a few threads has such
# a piece, since finding the file's pages takes one of them longer than the device's bus does.
_STAGING_BYTES = 1 << 24
_COPYING = 4
# Below, launching the kernels of a fingerprint takes longer than copying and hashing.
_FINGERPRINT_BYTES = 1 << 20
_ALIGN = 64
_DTYPES = {
    str(value)[len("torch.") :]: value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


class TreeError(Exception):
    """The bytes or the description that came from the other side do not fit."""


def flatten(tree: Tree) -> Tuple[Any, List[Any]]:
    """(structure, leaves). Tuples and lists are both sequences; mappings keep their keys."""
    leaves: List[Any] = []

    def walk(node: Tree) -> Any:
        if isinstance(node, (tuple, list)):
            return {"sequence": [walk(item) for item in node]}
        if isinstance(node, Mapping):
            return {"mapping": [[_key(key), walk(item)] for key, item in node.items()]}
        leaves.append(node)
        return {"leaf": len(leaves) - 1}

    return walk(tree), leaves


def tensors(tree: Tree) -> List[torch.Tensor]:
    """The tensor leaves of `tree`, in order."""
    return [leaf for leaf in flatten(tree)[1] if isinstance(leaf, torch.Tensor)]


def rebuild(tree: Tree, leaves: List[Any]) -> Tree:
    """A tree shaped like `tree` with other leaves."""
    remaining = iter(leaves)

    def walk(node: Tree) -> Any:
        if isinstance(node, tuple):
            return tuple(walk(item) for item in node)
        if isinstance(node, list):
            return [walk(item) for item in node]
        if isinstance(node, Mapping):
            return {key: walk(item) for key, item in node.items()}
        return next(remaining)

    return walk(tree)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else repr(key)


class _Digests:
    """How bytes are digested, the same way in all processes of a Verdict. `fingerprints`: large
    tensors by their fingerprints."""

    def __init__(self) -> None:
        self.fingerprints = False

    def update(self, state: Any, tensor: torch.Tensor) -> None:
        large = tensor.numel() * tensor.element_size() >= _FINGERPRINT_BYTES
        if self.fingerprints and large:
            state.update(fingerprint.of(tensor).encode())
            return
        host = host_copy(tensor)  # a name, because the view does not keep it alive
        state.update(byte_view(host))


digests = _Digests()


class _Staging:
    """Memory for copies between a device and a file, made at the first need and kept."""

    def __init__(self) -> None:
        self._pieces: List[torch.Tensor] = []

    def pieces(self, count: int) -> List[torch.Tensor]:
        while len(self._pieces) < count:
            room = torch.empty(_STAGING_BYTES, dtype=torch.uint8)
            try:
                self._pieces.append(room.pin_memory())
            except RuntimeError:  # a driver that may not lock memory copies more slowly
                self._pieces.append(room)
        return self._pieces[:count]


_staging = _Staging()


def _staged(size: int, copy: Callable[[int, int, torch.Tensor], None]) -> None:
    """`copy(start, end, staging)` for all pieces of `size` bytes, a few at a time. Raises what the
    first of them raised."""
    starts = range(0, size, _STAGING_BYTES)
    pieces = _staging.pieces(max(1, min(_COPYING, len(starts))))
    failed: List[BaseException] = []

    def work(first: int) -> None:
        try:
            for start in starts[first :: len(pieces)]:
                if failed:
                    return
                copy(start, min(start + _STAGING_BYTES, size), pieces[first])
        except BaseException as error:
            failed.append(error)

    others = [threading.Thread(target=work, args=(first,)) for first in range(1, len(pieces))]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    if failed:
        raise failed[0]


def byte_view(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor; the caller keeps the tensor alive."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous CPU memory with the values of `tensor`; the same memory where it already is."""
    plain = tensor.detach()
    if plain.is_complex() and plain.is_conj():
        plain = plain.resolve_conj()
    if plain.is_neg():
        plain = plain.resolve_neg()
    return plain.to("cpu").contiguous()


def plain(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Contiguous memory of its own on `device` with the values of `tensor`."""
    values = tensor.detach().resolve_conj().resolve_neg()
    return values.to(device, copy=True, memory_format=torch.contiguous_format)


def write(tree: Tree, fd: int, offset: int = 0) -> Dict[str, Any]:
    """Write the tensors of `tree` into `fd` from `offset` on; the JSON description of all leaves.

    A leaf that is no plain strided tensor is described, not written; the judge refuses it.
    """
    structure, leaves = flatten(tree)
    described = []
    for leaf in leaves:
        entry = describe(leaf)
        if entry["kind"] == "tensor":
            offset = -(-offset // _ALIGN) * _ALIGN
            entry["offset"], entry["bytes"] = offset, leaf.numel() * leaf.element_size()
            _write_tensor(fd, leaf, offset)
            offset += entry["bytes"]
        described.append(entry)
    return {"structure": structure, "leaves": described, "end": offset}


def describe(leaf: Any) -> Dict[str, Any]:
    """What kind of leaf this is; exact types only, so that a lazy subclass is never a tensor."""
    if type(leaf) in (torch.Tensor, torch.nn.Parameter):
        if leaf.layout != torch.strided or leaf.is_quantized or leaf.device.type == "meta":
            return {"kind": "unsupported", "type": f"{leaf.layout} tensor on {leaf.device}"}
        return {
            "kind": "tensor",
            "dtype": str(leaf.dtype)[len("torch.") :],
            "shape": list(leaf.shape),
            "stride": list(leaf.stride()),
            "device": str(leaf.device),
        }
    if leaf is None or type(leaf) in (bool, int, str):
        return {"kind": "value", "type": type(leaf).__name__, "value": leaf}
    if type(leaf) is float:
        # repr: JSON has no NaN and no infinity
        return {"kind": "value", "type": "float", "value": repr(leaf)}
    return {"kind": "unsupported", "type": f"{type(leaf).__module__}.{type(leaf).__qualname__}"}


def effects(
    inputs: Tree, mutated: List[int], buffers: Mapping[str, torch.Tensor]
) -> Dict[str, Any]:
    """What a call did beside returning: {"input N": changed leaf, "buffer NAME": buffer}."""
    leaves = flatten(inputs)[1]
    found = {f"input {index}": leaves[index] for index in mutated}
    return {**found, **{f"buffer {name}": value for name, value in buffers.items()}}


def digest(tree: Tree) -> str:
    """Of structure, dtypes, shapes and values, but not of strides: what `read` gives has the digest
    of what was written. Runs no code of a leaf's own type."""
    structure, leaves = flatten(tree)
    return digest_flat(structure, leaves)


def digest_flat(structure: Any, leaves: List[Any]) -> str:
    """`digest` of what `flatten` makes of a tree."""
    state = hashlib.sha256(json.dumps(structure).encode())
    for leaf in leaves:
        entry = describe(leaf)
        if entry["kind"] != "tensor":
            state.update(f"{entry.get('type')} {entry.get('value')}".encode())
            continue
        state.update(f"{entry['dtype']} {entry['shape']}".encode())
        digests.update(state, leaf)
    return state.hexdigest()


def read(description: Mapping[str, Any], fd: int, device: str = "cpu") -> Tuple[Any, List[Any]]:
    """(structure, leaves) as `flatten` gives them, tensors on `device`; an unsupported leaf stays
    its description.

    Raises TreeError where the description is malformed or the file too short for it.
    """
    try:
        leaves = [_read_leaf(entry, fd, device) for entry in description["leaves"]]
        return description["structure"], leaves
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError, AttributeError) as error:
        raise TreeError(f"unreadable outputs: {error}") from error


def split(structure: Any, leaves: List[Any]) -> List[Tuple[Any, List[Any]]]:
    """The items of a flattened sequence, each flattened by itself. Raises TreeError where it is no
    sequence, or its leaves are not in order."""
    items = []
    taken = 0

    def walk(node: Any, own: List[Any]) -> Any:
        nonlocal taken
        if "sequence" in node:
            return {"sequence": [walk(item, own) for item in node["sequence"]]}
        if "mapping" in node:
            return {"mapping": [[str(key), walk(item, own)] for key, item in node["mapping"]]}
        if node["leaf"] != taken:
            raise TreeError("the leaves of the outputs are not in order")
        own.append(leaves[taken])
        taken += 1
        return {"leaf": len(own) - 1}

    try:
        for item in structure["sequence"]:
            own: List[Any] = []
            items.append((walk(item, own), own))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TreeError(f"unreadable outputs: {error}") from error
    return items


def _read_leaf(entry: Mapping[str, Any], fd: int, device: str) -> Any:
    if entry["kind"] == "value":
        return float(entry["value"]) if entry["type"] == "float" else entry["value"]
    if entry["kind"] != "tensor":
        return dict(entry)
    shape = [int(size) for size in entry["shape"]]
    expected = _DTYPES[entry["dtype"]].itemsize
    for size in shape:
        expected *= size
    if min(shape, default=0) < 0 or expected != entry["bytes"]:
        raise TreeError(f"{entry['bytes']} bytes announced for a {entry['dtype']} tensor {shape}")
    if os.fstat(fd).st_size < entry["offset"] + expected:
        raise TreeError("the outputs are shorter than announced")
    tensor = torch.empty(shape, dtype=_DTYPES[entry["dtype"]], device=device)
    _read_tensor(fd, tensor, entry["offset"])
    return tensor


def _write_tensor(fd: int, tensor: torch.Tensor, offset: int) -> None:
    if tensor.device.type == "cpu":
        host = host_copy(tensor)
        _write_all(fd, byte_view(host), offset)
        return
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)

    def copy(start: int, end: int, staging: torch.Tensor) -> None:
        staging[: end - start].copy_(flat[start:end])
        _write_all(fd, byte_view(staging)[: end - start], offset + start)

    _staged(flat.numel(), copy)


def _read_tensor(fd: int, tensor: torch.Tensor, offset: int) -> None:
    if tensor.device.type == "cpu":
        _read_all(fd, byte_view(tensor), offset)
        return
    flat = tensor.reshape(-1).view(torch.uint8)

    def copy(start: int, end: int, staging: torch.Tensor) -> None:
        _read_all(fd, byte_view(staging)[: end - start], offset + start)
        flat[start:end].copy_(staging[: end - start])

    _staged(flat.numel(), copy)


def _write_all(fd: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done : done + _CHUNK], offset + done)


def _read_all(fd: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done : done + _CHUNK]], offset + done)
        if count == 0:
            raise TreeError("the outputs are shorter than announced")
        done += count
