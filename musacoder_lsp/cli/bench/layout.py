"""KernelBench's folders: problems by level, and the runs of others with their recorded results.

A run folder holds `level_L_problem_P_sample_S_kernel.py` and `eval_results.json`, which maps a
problem's number to a list of results, one for each sample, or in old runs to a bare result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from musacoder_lsp.cli.options import Unusable

_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
Outcome = Literal["correct", "wrong", "not compiled", "no verdict"]
# Words that speak of the machine that recorded a result, not of the kernel: its memory, its card,
# or a build folder of torch that mixed up extensions of one name.
_MACHINE = ("out of memory", "no kernel image is available", "cannot open shared object file")


@dataclass(frozen=True, slots=True)
class Identifier:
    """Which Candidate of which run."""

    run: str
    level: int
    problem: int
    sample: int

    def __str__(self) -> str:
        return f"{self.run} L{self.level} #{self.problem} s{self.sample}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One result as a run recorded it."""

    compiled: bool
    correctness: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """`no verdict` where the recording machine failed: it lacked memory, or ran code that was
        compiled for another card."""
        words = " ".join(
            str(self.metadata.get(name, "")) for name in ("runtime_error", "compilation_error")
        ).lower()
        if self.correctness:
            return "correct"
        if any(word in words for word in _MACHINE):
            return "no verdict"
        return "wrong" if self.compiled else "not compiled"

    @property
    def words(self) -> str:
        """What the record says, in one line."""
        names = ("compilation_error", "runtime_error", "correctness_issue", "max_difference")
        said = [str(self.metadata[name]) for name in names if self.metadata.get(name)]
        return " ".join(" ".join(said).split())[:160]


def number_of(path: Path) -> int:
    """The number that a problem's file name begins with; 0 where it begins with none."""
    match = re.match(r"\d+", path.name)
    return int(match.group()) if match else 0


def level_folder(dataset: Path, level: int) -> Path | None:
    for parent in (dataset / "KernelBench", dataset):
        if (parent / f"level{level}").is_dir():
            return parent / f"level{level}"
    return None


def problems(dataset: Path, level: int) -> dict[int, Path]:
    """Problem files by number. Raises Unusable where the level is missing."""
    folder = level_folder(dataset, level)
    if folder is None:
        raise Unusable(f"{dataset} has no folder KernelBench/level{level}; give a checkout.")
    return {number_of(path): path for path in sorted(folder.glob("[0-9]*.py"), key=number_of)}


def candidates(run: Path) -> dict[Identifier, Path]:
    """The Candidates of a run, in order. Raises Unusable where there are none."""
    found = {}
    for path in run.glob("level_*_kernel.py"):
        match = _KERNEL.fullmatch(path.name)
        if match is not None:
            found[Identifier(run.resolve().name, *map(int, match.groups()))] = path
    if not found:
        raise Unusable(
            f"{run} holds no level_L_problem_P_sample_S_kernel.py; give a folder of KernelBench's "
            "runs."
        )
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _order(name: Identifier) -> tuple[str, int, int, int]:
    return name.run, name.level, name.problem, name.sample


def recorded(run: Path) -> dict[tuple[int, int], Recorded]:
    """Recorded results by (problem, sample); none where the run has no `eval_results.json`.
    Raises Unusable where that file is damaged."""
    path = run / "eval_results.json"
    if not path.exists():
        return {}
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        return {
            (int(problem), int(result.get("sample_id", 0))): Recorded(
                bool(result["compiled"]), bool(result["correctness"]), result.get("metadata") or {}
            )
            for problem, results in body.items()
            for result in (results if isinstance(results, list) else [results])
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unusable(f"{path} is no eval_results.json of KernelBench: {error}.") from error


def results_file(results: Iterable[tuple[Identifier, Mapping[str, Any]]]) -> dict[str, Any]:
    """The body of `eval_results.json`."""
    body: dict[str, list[dict[str, Any]]] = {}
    for name, result in results:
        body.setdefault(str(name.problem), []).append({"sample_id": name.sample, **result})
    return body


def numbers(text: str | None) -> set[int] | None:
    """`1,5,19-32` as a set; None for all. Raises Unusable."""
    if text is None:
        return None
    wanted: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            wanted.update(range(int(first), int(last or first) + 1))
    except ValueError:
        raise Unusable(f"{text} is no list of numbers; write such as 1,5,19-32.") from None
    return wanted
