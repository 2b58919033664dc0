"""Compile, check, police and time a Candidate against its Reference; knows no LSP and no model.

    from musacoder_verifier import verify
    verdict = verify("reference.py", "candidate.py", backend="cpu")

The names below are imported when they are first used: whoever needs one module of this package pays
for that module only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musacoder_verifier.candidate import Candidate
    from musacoder_verifier.library import as_candidate, as_reference, verify
    from musacoder_verifier.reference import Reference
    from musacoder_verifier.reward import RewardSettings
    from musacoder_verifier.settings import VerifierSettings, VerifyOptions
    from musacoder_verifier.verdict import Verdict
    from musacoder_verifier.verifier import Verifier
    from musacoder_verifier.workload import Workload

_PLACES = {
    "Candidate": "candidate",
    "Reference": "reference",
    "RewardSettings": "reward",
    "Verdict": "verdict",
    "Verifier": "verifier",
    "VerifierSettings": "settings",
    "VerifyOptions": "settings",
    "Workload": "workload",
    "as_candidate": "library",
    "as_reference": "library",
    "verify": "library",
}
__all__ = [
    "Candidate", "Reference", "RewardSettings", "Verdict", "Verifier", "VerifierSettings",
    "VerifyOptions", "Workload", "as_candidate", "as_reference", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
