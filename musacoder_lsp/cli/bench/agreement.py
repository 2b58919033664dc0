"""`musacoder bench agreement`: our Verdicts against the recorded results of KernelBench's runs.

Reads JSON lines that `musacoder bench kernelbench --like kernelbench --lines FILE` kept; verifies
nothing itself. Legality is told in columns of its own: KernelBench polices nothing, so a kernel
that calls PyTorch's operators is no disagreement about its result.
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from musacoder_verifier import verdict_json
from musacoder_verifier.content_key import verifier_version
from musacoder_verifier.policy import POLICIES, accuses, condemns
from musacoder_verifier.verdict import Finding

from musacoder_lsp.cli import options
from musacoder_lsp.cli.bench import layout, lines, scores
from musacoder_lsp.cli.bench.layout import Identifier, Outcome, Recorded
from musacoder_lsp.cli.bench.run_candidates import KIND
from musacoder_lsp.cli.options import Unusable

ADJUDICATIONS = Path(__file__).with_name("adjudications.toml")
TOLERANCES = (1e-2, 1e-4)
_OUTCOMES: tuple[Outcome, ...] = ("correct", "wrong", "not compiled")
_STATUSES: Mapping[str, Outcome] = {
    "ok": "correct",
    "illegal": "wrong",
    "wrong_result": "wrong",
    "runtime_error": "wrong",
    "timeout": "wrong",
    "compile_error": "not compiled",
    "reference_error": "no verdict",
    "infra_error": "no verdict",
}


@dataclass(frozen=True, slots=True)
class Adjudication:
    """A person's ruling about one disagreement. It holds for these two outcomes and no others.

    `right`: `ours`, `record`, or `neither` (the question has no one answer)."""

    recorded: str
    ours: str
    right: str
    words: str


@dataclass(frozen=True, slots=True)
class Case:
    """One Candidate that has both a record and a Verdict."""

    name: Identifier
    record: Recorded
    verdict: Mapping[str, Any]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "agreement",
        help="our Verdicts against the recorded results of KernelBench's runs",
        description="Exit code 1: a disagreement at the records' tolerance is not adjudicated.",
    )
    add = parser.add_argument
    add("--run", dest="runs", type=Path, action="append", required=True, metavar="FOLDER")
    add("--lines", type=Path, action="append", required=True, metavar="FILE",
        help="kept by `bench kernelbench --like kernelbench --lines FILE`")  # fmt: skip
    add("--adjudications", type=Path, default=ADJUDICATIONS, metavar="FILE",
        help="TOML; default: those of this distribution")  # fmt: skip
    add("--verifier", default=verifier_version(), metavar="VERSION",
        help="whose lines are read; default: %(default)s, this one")  # fmt: skip
    add("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        report = compare(
            arguments.runs, arguments.lines, arguments.adjudications, version=arguments.verifier
        )
    except Unusable as problem:
        return options.fail(problem, as_json=arguments.json)
    if arguments.json:
        options.print_json(report)
    else:
        print(markdown(report))
    return 1 if report["unsettled"] else 0


def compare(
    runs: Sequence[Path], kept: Sequence[Path], rulings: Path, *, version: str | None = None
) -> dict[str, Any]:
    """The whole report on lines of this version of the verifier, or of `version`. Raises
    Unusable."""
    cases = _cases(runs, kept, version)
    ruled = read_adjudications(rulings)
    answered = [case for case in cases if case.record.outcome != "no verdict"]
    disagreements = [_told(case, ruled) for case in answered if not _agrees(case, TOLERANCES[0])]
    right = [case for case in answered if case.record.outcome == "correct"]
    return {
        "candidates": len(cases),
        "no_verdict": len(cases) - len(answered),
        "at": {
            f"{tolerance:g}": _at(answered, tolerance, ruled if index == 0 else {})
            for index, tolerance in enumerate(TOLERANCES)
        },
        "disagreements": disagreements,
        "unsettled": sum(item["ruling"] is None for item in disagreements),
        "known_correct": len(right),
        "accused": {
            name: sum(any(accuses(name, finding) for finding in _findings(case)) for case in right)
            for name in POLICIES
        },
        "condemned": {
            name: sum(any(condemns(name, finding) for finding in _findings(case)) for case in right)
            for name in POLICIES
        },
        "rules": _rules(right),
    }


def _cases(runs: Sequence[Path], kept: Sequence[Path], version: str | None) -> list[Case]:
    found: dict[Identifier, Mapping[str, Any]] = {}
    for line in lines.read(kept, KIND, version=version):
        if str(line["mode"]).startswith("kernelbench "):
            name = Identifier(line["run"], line["level"], line["problem"], line["sample"])
            found[name] = line["verdict"]
    cases = []
    for folder in runs:
        records = layout.recorded(folder)
        for name in layout.candidates(folder):
            record = records.get((name.problem, name.sample))
            if record is not None and name in found:
                cases.append(Case(name, record, found[name]))
    return cases


def outcome(verdict: Mapping[str, Any], tolerance: float) -> Outcome:
    """What a Verdict in KernelBench mode says of the result at `tolerance`, legality apart."""
    status = str(verdict["status"])
    likened = (verdict["correctness"] or {}).get("kernelbench")
    if likened is not None and likened["done"] == likened["planned"]:
        passed = likened["passed"].get(f"{tolerance:g}")
        return "correct" if passed == likened["planned"] else "wrong"
    return _STATUSES[status]


def _agrees(case: Case, tolerance: float) -> bool:
    return outcome(case.verdict, tolerance) == case.record.outcome


def _at(
    cases: Sequence[Case], tolerance: float, ruled: Mapping[Identifier, Adjudication]
) -> dict[str, Any]:
    """`adjudicated` counts agreements and those disagreements in which the record was not right."""
    confusion = Counter((case.record.outcome, outcome(case.verdict, tolerance)) for case in cases)
    agree = sum(case.record.outcome == outcome(case.verdict, tolerance) for case in cases)
    excused = 0
    for case in cases:
        ruling = _ruling(case, ruled)
        excused += not _agrees(case, tolerance) and ruling is not None and ruling.right != "record"
    return {
        "compared": len(cases),
        "agree": agree,
        "adjudicated": agree + excused,
        "confusion": [
            {
                "record": record,
                **{name: confusion[record, name] for name in (*_OUTCOMES, "no verdict")},
            }
            for record in _OUTCOMES
        ],
    }


def _ruling(case: Case, ruled: Mapping[Identifier, Adjudication]) -> Adjudication | None:
    ruling = ruled.get(case.name)
    if ruling is None or ruling.recorded != case.record.outcome:
        return None
    return ruling if ruling.ours == outcome(case.verdict, TOLERANCES[0]) else None


def _told(case: Case, ruled: Mapping[Identifier, Adjudication]) -> dict[str, Any]:
    ruling = _ruling(case, ruled)
    return {
        **asdict(case.name),
        "recorded": case.record.outcome,
        "record_says": case.record.words,
        "ours": outcome(case.verdict, TOLERANCES[0]),
        "status": case.verdict["status"],
        "evidence": evidence(case.verdict),
        "ruling": asdict(ruling) if ruling is not None else None,
    }


def evidence(verdict: Mapping[str, Any]) -> str:
    """What we have to say for a Verdict, in one line."""
    told = verdict_json.from_json(verdict)
    parts = []
    if told.failure is not None:
        parts += [told.failure.message, told.failure.detail if told.correctness else ""]
    if told.compile is not None:
        errors = [entry.message for entry in told.compile.diagnostics if entry.severity == "error"]
        parts += errors[:1]
    if told.correctness is not None:
        parts.append(f"largest difference {told.correctness.max_abs_error:.3g}")
        if told.correctness.near_miss:
            parts.append("a near miss")
    violations = [f.rule for f in (told.legality.findings if told.legality else ())
                  if f.severity == "violation"]  # fmt: skip
    if violations:
        parts.append(f"findings: {', '.join(sorted(set(violations)))}")
    return " · ".join(" ".join(part.split())[:200] for part in parts if part)


def _findings(case: Case) -> list[Finding]:
    legality = case.verdict["legality"] or {"findings": []}
    return [
        Finding(item["rule"], item["evidence"], severity=item["severity"])
        for item in legality["findings"]
    ]


def _condemning(case: Case, policy: str) -> set[str]:
    """Rules by which `policy` condemns this Candidate."""
    return {finding.rule for finding in _findings(case) if condemns(policy, finding)}


def _rules(cases: Sequence[Case]) -> dict[str, dict[str, int]]:
    """For each policy, how many known-correct Candidates each rule condemns."""
    return {
        policy: dict(Counter(rule for case in cases for rule in _condemning(case, policy)))
        for policy in POLICIES
    }


def read_adjudications(path: Path) -> dict[Identifier, Adjudication]:
    """Raises Unusable for a file that is damaged."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
        found = {
            Identifier(item["run"], item["level"], item["problem"], item["sample"]): Adjudication(
                item["recorded"], item["ours"], item["right"], item["words"]
            )
            for item in body.get("adjudication", [])
        }
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise Unusable(f"{path} holds no adjudications: {error}.") from error
    unknown = [ruling.right for ruling in found.values()
               if ruling.right not in ("ours", "record", "neither")]  # fmt: skip
    if unknown:
        raise Unusable(f"{path}: right = {unknown[0]!r}; write ours, record or neither.")
    return found


def markdown(report: Mapping[str, Any]) -> str:
    """The report as sections of a document."""
    parts = [
        f"{report['candidates']} Candidates have both a record and a Verdict; of these, the record "
        f"of {report['no_verdict']} says only that the recording machine failed (memory, code for "
        "another card), and is not compared.\n"
    ]
    for tolerance, at in report["at"].items():
        share = at["agree"] / at["compared"] if at["compared"] else 0.0
        settled = at["adjudicated"] / at["compared"] if at["compared"] else 0.0
        parts.append(
            f"At tolerance {tolerance}: {at['agree']} of {at['compared']} agree ({share:.1%}); "
            f"with adjudication {at['adjudicated']} ({settled:.1%}).\n\n"
            f"{scores.markdown(at['confusion'])}"
        )
    accused = [
        {"policy": name, "of": report["known_correct"], "accused of cheating": count,
         "share": f"{count / (report['known_correct'] or 1):.1%}",
         "for others' code alone": report["condemned"][name] - count,
         "rules": ", ".join(f"{rule} {n}" for rule, n in sorted(report["rules"][name].items()))}
        for name, count in report["accused"].items()
    ]  # fmt: skip
    parts.append(
        "Known-correct Candidates that a policy calls illegal: for a cheat, and only because the "
        "policy wants no operators of PyTorch and no libraries to do the work:\n"
    )
    parts.append(scores.markdown(accused))
    if report["disagreements"]:
        rows = [
            {
                "run": f"{item['run']} L{item['level']} #{item['problem']} s{item['sample']}",
                "record": item["recorded"],
                "ours": item["ours"],
                "evidence": _cell(item["evidence"]),
                "ruling": _cell(
                    f"{item['ruling']['right']}: {item['ruling']['words']}"
                    if item["ruling"]
                    else "not adjudicated"
                ),
            }
            for item in report["disagreements"]
        ]
        parts += ["Disagreements at the records' tolerance:\n", scores.markdown(rows)]
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
