"""Content keys: a stored result speaks of what these name, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from musacoder_verifier import allow_list
from musacoder_verifier.backends.base import Backend
from musacoder_verifier.candidate import Candidate
from musacoder_verifier.reference import Reference
from musacoder_verifier.worker import WorkerInfo

# Change it when the same Candidate may get another Verdict from changed code.
CHECKS_VERSION = "5"


def versions(info: WorkerInfo, backend: Backend) -> dict[str, str]:
    """What a Verdict depends on beside Reference, Candidate and device."""
    return {
        "torch": info.torch_version,
        "python": info.python_version,
        "verifier": verifier_version(),
        "operator_list": allow_list.VERSION,
        "flags": " ".join((*backend.host_flags, *backend.device_flags)),
        **backend.versions(),
    }


def verifier_version() -> str:
    """The version of everything that may change a Verdict."""
    return f"{_distribution()}+{CHECKS_VERSION}"


def _distribution() -> str:
    try:
        return metadata.version("musacoder-lsp")
    except metadata.PackageNotFoundError:
        return "0"


def verdict_key(
    reference: Reference,
    candidate: Candidate,
    backend: Backend,
    mode: str,
    named: Mapping[str, str],
) -> str:
    """The Workload is part of the Reference's source."""
    device = [backend.name, backend.device_name()]
    return digest([reference.key, candidate.key, *device, mode, sorted(named.items())])


def baseline_key(
    reference: Reference, backend: Backend, threads: int, named: Mapping[str, str]
) -> str:
    versions = [named.get("torch"), named.get("driver"), named.get("tf32")]
    return digest([reference.key, backend.name, backend.device_name(), threads, *versions])


def digest(parts: list[Any]) -> str:
    """Of plain JSON values, in hexadecimal."""
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
