"""What measured lines add up to, KernelBench's scores among it, and tables of that in Markdown."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from musacoder_lsp.cli.bench.lines import Line

# fast_p of KernelBench: the share of all samples that are correct and faster than p times eager.
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.1, 1.5, 2.0)
Table = list[dict[str, Any]]


def geomean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def fast(speedups: Iterable[float | None], p: float) -> float | None:
    """fast_p; None stands for a sample that is not correct."""
    all_of_them = list(speedups)
    if not all_of_them:
        return None
    return sum(value is not None and value > p for value in all_of_them) / len(all_of_them)


def _groups(found: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    named: dict[str, list[Line]] = {}
    for line in found:
        named.setdefault(f"{line['run']} L{line['level']}", []).append(line)
    return [*named.items(), ("all", list(found))] if len(named) > 1 else list(named.items())


def table(found: Sequence[Line]) -> Table:
    """One row for each run and level: statuses over all, speed over those that were to be timed."""
    rows = []
    for name, group in _groups(found):
        statuses = Counter(str(line["verdict"]["status"]) for line in group)
        timed = [line["verdict"] for line in group if line["timed"]]
        speedups = [_speedup(verdict) for verdict in timed]
        correct = [value for value in speedups if value is not None]
        rows.append(
            {
                "run": name,
                "candidates": len(group),
                "pass": statuses["ok"],
                **{status: count for status, count in sorted(statuses.items()) if status != "ok"},
                "timed": len(timed),
                "faster": sum(bool(verdict["faster"]) for verdict in timed),
                **{f"fast_{p:g}": fast(speedups, p) for p in THRESHOLDS},
                "geomean": geomean(correct),
            }
        )
    return rows


def _speedup(verdict: Mapping[str, Any]) -> float | None:
    timing = verdict["timing"] if verdict["status"] == "ok" else None
    return float(timing["speedup_eager"]) if timing is not None else None


def compile_table(found: Sequence[Line]) -> Table:
    """One row for each run and level: how many compile, in which lane, and how long they take."""
    rows = []
    for name, group in _groups(found):
        good = [line for line in group if line["status"] == "ok"]
        fresh = [float(line["seconds"]) for line in good if line["seconds"] and not line["cached"]]
        lanes = Counter(str(line["lane"]) for line in good)
        rows.append(
            {
                "run": name,
                "candidates": len(group),
                "compile": len(good),
                "fast lane": lanes["fast"],
                "stock lane": lanes["stock"],
                "no extension": lanes["none"],
                "fast lane share": lanes["fast"] / (lanes["fast"] + lanes["stock"] or 1),
                "median s": statistics.median(fresh) if fresh else None,
            }
        )
    return rows


def cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def markdown(rows: Table) -> str:
    """A Markdown table; columns that some rows lack are filled."""
    if not rows:
        return "Nothing was measured.\n"
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = f"| {' | '.join(columns)} |"
    rule = "|" + "|".join("---" if name in ("run", "name") else "--:" for name in columns) + "|"
    body = [f"| {' | '.join(cell(row.get(name)) for name in columns)} |" for row in rows]
    return "\n".join([head, rule, *body, ""])
