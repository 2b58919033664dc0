"""`musacoder bench report`: the tables of a document, from measured JSON lines and nothing else.

A document has places such as `<!-- measured: candidates -->` ... `<!-- end -->`; what stands
between is replaced. A place without data says so.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from musacoder_verifier.content_key import verifier_version

from musacoder_lsp.cli import options
from musacoder_lsp.cli.bench import agreement, evaluators, lines, run_candidates, scores
from musacoder_lsp.cli.options import Unusable

_PLACE = re.compile(r"(<!-- measured: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
NOTHING = "Not measured with this version yet.\n"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("report", help="fill a document's tables from JSON lines")
    add = parser.add_argument
    add("lines", type=Path, nargs="+", metavar="LINES", help="JSON lines of `musacoder bench`")
    add("--run", dest="runs", type=Path, action="append", default=[], metavar="FOLDER",
        help="runs with records, for the section on agreement")  # fmt: skip
    add("--timing", type=Path, action="append", default=[], metavar="FILE",
        help="what `bench timing --json` printed, for the section on repeatability")  # fmt: skip
    add("--adjudications", type=Path, default=agreement.ADJUDICATIONS, metavar="FILE")
    add("--verifier", default=verifier_version(), metavar="VERSION",
        help="whose lines are read; default: %(default)s, this one")  # fmt: skip
    add("--write", type=Path, required=True, metavar="DOCUMENT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        try:
            text = arguments.write.read_text(encoding="utf-8")
        except OSError as error:
            raise Unusable(f"{arguments.write} cannot be read: {error.strerror}.") from error
        arguments.write.write_text(fill(text, arguments), encoding="utf-8")
    except Unusable as problem:
        return options.fail(problem, as_json=False)
    return 0


def fill(text: str, arguments: argparse.Namespace) -> str:
    """`text` with every place filled. Raises Unusable for a place that no section knows."""

    def replaced(match: re.Match[str]) -> str:
        section = _SECTIONS.get(match["name"])
        if section is None:
            known = ", ".join(_SECTIONS)
            raise Unusable(f"there is no section {match['name']}; choose one of: {known}.")
        body = section(arguments)
        return f"{match[1]}\n{body or NOTHING}\n{match['end']}"

    return _PLACE.sub(replaced, text)


def _origin(found: Sequence[lines.Line]) -> str:
    """Device, dates and version of what a table was made from."""
    devices = sorted({str(line["device"]) for line in found})
    dates = sorted({str(line["date"]) for line in found})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{', '.join(devices)}; {when}; verifier {found[0]['verifier']}.\n\n"


def _latest(arguments: argparse.Namespace, kind: str) -> list[lines.Line]:
    """The last line of each key: a repeated measurement replaces an earlier one."""
    found: dict[str, lines.Line] = {}
    for index, line in enumerate(lines.read(arguments.lines, kind, version=arguments.verifier)):
        found[str(line.get("key", index))] = line
    return list(found.values())


def _candidates(arguments: argparse.Namespace) -> str:
    found = _latest(arguments, run_candidates.KIND)
    modes: dict[str, list[lines.Line]] = {}
    for line in found:
        modes.setdefault(str(line["mode"]), []).append(line)
    return "\n".join(
        f"Mode, policy, tolerance, trials: `{mode}`. {_origin(group)}"
        f"{scores.markdown(scores.table(group))}"
        for mode, group in sorted(modes.items())
    )


def _agreement(arguments: argparse.Namespace) -> str:
    found = _latest(arguments, run_candidates.KIND)
    if not arguments.runs or not found:
        return ""
    report = agreement.compare(
        arguments.runs, arguments.lines, arguments.adjudications, version=arguments.verifier
    )
    return _origin(found) + agreement.markdown(report) if report["candidates"] else ""


def _compile(arguments: argparse.Namespace) -> str:
    found = _latest(arguments, run_candidates.COMPILE_KIND)
    if not found:
        verified = _latest(arguments, run_candidates.KIND)
        found = [_as_compiled(line) for line in verified if line["verdict"]["compile"] is not None]
    return _origin(found) + scores.markdown(scores.compile_table(found)) if found else ""


def _as_compiled(line: lines.Line) -> lines.Line:
    """What a Verdict says of compiling, as a line of `--compile-only` says it."""
    verdict = line["verdict"]
    status = verdict["status"] if verdict["status"] == "compile_error" else "ok"
    report = {name: verdict["compile"][name] for name in ("lane", "seconds", "cached")}
    return {**line, "status": status, **report}


def _evaluators(part: str) -> Callable[[argparse.Namespace], str]:
    def section(arguments: argparse.Namespace) -> str:
        latest = {
            (line["run"], line["level"], line["problem"], line["sample"]): line
            for line in lines.read(arguments.lines, evaluators.KIND, version=arguments.verifier)
            if line["part"] == part
        }
        found = list(latest.values())
        if not found:
            return ""
        problems = [
            {"candidate": f"{line['run']} L{line['level']} #{line['problem']}", "what": name,
             "problem": str(said)[:160].replace("|", "\\|").replace("\n", " ")}
            for line in found for name, said in line["problems"].items()
        ]  # fmt: skip
        table = scores.markdown(evaluators.summary(found))
        return _origin(found) + table + ("\n" + scores.markdown(problems) if problems else "")

    return section


def _repeatability(arguments: argparse.Namespace) -> str:
    """What `bench timing --json` printed, one row for each kernel."""
    parts = []
    for path in arguments.timing:
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            rows = [
                {"name": name, **{key: value for key, value in figures.items() if _plain(value)}}
                for name, figures in body["results"].items()
            ]
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise Unusable(f"{path} is no output of bench timing --json: {error}.") from error
        machine = ", ".join(str(value) for value in body.get("machine", {}).values())
        parts.append(f"{machine}\n\n{scores.markdown(rows)}")
    return "\n".join(parts)


def _plain(value: object) -> bool:
    return isinstance(value, (int, float, str))


def _faults(arguments: argparse.Namespace) -> str:
    """One row for each kind of misbehaviour: how often it was tried, which statuses it got, and how
    many honest Verdicts after it were changed."""
    found = list(lines.read(arguments.lines, "fault", version=arguments.verifier))
    kinds: dict[str, list[lines.Line]] = {}
    for line in found:
        kinds.setdefault(str(line["misbehaviour"]), []).append(line)
    rows = [
        {
            "name": name,
            "tried": len(group),
            "statuses": ", ".join(
                f"{status} {count}"
                for status, count in Counter(str(line["status"]) for line in group).items()
            ),
            "honest changed": sum(not line["honest_unchanged"] for line in group),
            "slowest recovery s": max(float(line["recovery_seconds"]) for line in group),
        }
        for name, group in sorted(kinds.items())
    ]
    return _origin(found) + scores.markdown(rows) if rows else ""


_SECTIONS: Mapping[str, Callable[[argparse.Namespace], str]] = {
    "candidates": _candidates,
    "agreement": _agreement,
    "compile": _compile,
    "evaluators": _evaluators("whole"),
    "evaluators-compile": _evaluators("compile"),
    "faults": _faults,
    "repeatability": _repeatability,
}
