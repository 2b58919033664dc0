"""How fast torch.compile makes a Reference: measured once, kept by content key.

Compiling takes tens of seconds where verifying takes one, and does not depend on the Candidate. It
is kept as a ratio to eager, which the timing stage measures anew each time.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from musacoder_verifier import content_key
from musacoder_verifier.limits import Limits
from musacoder_verifier.ratio import RatioInterval, ratio_of_medians
from musacoder_verifier.reference import Reference
from musacoder_verifier.stages.figures import Baseline
from musacoder_verifier.stages.pair import reference_spec
from musacoder_verifier.worker import ChildDied, ChildTimeout, Worker

_SAMPLES = 15


def read(cache_dir: Path, key: str) -> Baseline | None:
    """What was measured before under this key."""
    try:
        body = json.loads(_path(cache_dir, key).read_text(encoding="utf-8"))
        speedup = body["speedup"]
        return Baseline(
            body["mode"],
            RatioInterval(*speedup) if speedup is not None else None,
            tuple(body["notes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(cache_dir: Path, key: str) -> Path:
    return cache_dir / "baselines" / f"{key}.json"


def _write(cache_dir: Path, key: str, baseline: Baseline) -> None:
    speedup = baseline.speedup
    body = {
        "mode": baseline.mode,
        "speedup": [speedup.ratio, speedup.low, speedup.high] if speedup is not None else None,
        "notes": list(baseline.notes),
    }
    path = _path(cache_dir, key)
    with suppress(OSError):  # an unwritable cache costs time, not the Verdict
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(body), encoding="utf-8")
        part.replace(path)


async def measure(
    worker: Worker,
    reference: Reference,
    *,
    device: str,
    threads: int,
    seed: int,
    tf32: str,
    cache_dir: Path,
    key: str,
    timeout: float,
    hold: Callable[[], AbstractAsyncContextManager[bool]],
    modes: Sequence[str],
    versions: Mapping[str, str],
) -> Baseline:
    """Measure each mode in a child that may compile; never raises for what happens there.

    `hold` takes the device for a measurement; compiling does without it. Only a result is kept: a
    mode that failed for lack of time is tried again another day. What torch and triton compile is
    kept apart for each of `versions`.
    """
    folder = cache_dir / "torch-compile" / content_key.digest(sorted(versions.items()))[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return Baseline(None, None, (f"torch.compile: {folder} cannot be made: {error.strerror}",))
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        return Baseline(None, None, ("torch.compile needs a C++ compiler, which is missing",))
    spec = {
        "reference": reference_spec(reference),
        "device": device,
        "threads": threads,
        "modes": list(modes),
        "cache": str(folder),
        "samples": _SAMPLES,
        "seed": seed,
        "tf32": tf32,
    }
    measured: list[tuple[str, RatioInterval]] = []
    notes: list[str] = []
    ends = time.monotonic() + timeout
    limits = Limits(seconds=timeout + 5.0, processes="some", process_count=64)
    try:
        async with worker.child("baseline", spec, limits=limits, writable=(str(folder),)) as child:
            while True:
                answer = await child.receive(max(0.0, ends - time.monotonic()))
                if "mode" not in answer:
                    break
                if answer.get("compiled"):
                    async with hold() as held:
                        if not held:
                            notes.append("torch.compile was not measured: the device was in use")
                            break
                        await child.send({"op": "measure"})
                        answer = await child.receive(max(0.0, ends - time.monotonic()))
                _note(answer, measured, notes)
    except ChildTimeout:
        notes.append(f"torch.compile was stopped after {timeout:g} s")
    except ChildDied as error:
        notes.append(f"torch.compile: {error}")
    if not measured:
        return Baseline(None, None, tuple(notes) or ("torch.compile gave no result",))
    mode, speedup = max(measured, key=lambda item: item[1].ratio)
    baseline = Baseline(mode, speedup, tuple(notes))
    _write(cache_dir, key, baseline)
    return baseline


def _note(
    answer: Mapping[str, Any], measured: list[tuple[str, RatioInterval]], notes: list[str]
) -> None:
    if answer.get("failure") is not None:
        notes.append(f"torch.compile mode {answer['mode']}: {answer['failure']}")
        return
    with suppress(ValueError):
        interval = ratio_of_medians(answer["eager_ns"], answer["compiled_ns"])
        measured.append((str(answer["mode"]), interval))
