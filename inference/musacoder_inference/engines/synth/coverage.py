"""The coverage table, generated from the registry of rules: docs/synth-coverage.md.

`python -m musacoder_inference.engines.synth.coverage docs/synth-coverage.md` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from musacoder_inference.engines.synth.from_graph import RULES


def table() -> str:
    """The whole Markdown page."""
    families = sorted({entry.family for entry in RULES.values()})
    lines = [
        "# What synth covers",
        "",
        "Generated from the rules (`python -m musacoder_inference.engines.synth.coverage FILE`).",
        "Operators are those of the exported graph after decomposition (`graph.md`): softmax and",
        "most losses and activations arrive as the operators below. dtypes: fp32, fp64, fp16 and",
        "bf16 (computed in fp32), integers, bool. What is not listed is declined in one line.",
        "",
        "| family | operators | limits |",
        "|---|---|---|",
    ]
    for family in families:
        names = sorted({op for op, entry in RULES.items() if entry.family == family})
        short = sorted({name.split(".")[1] for name in names})
        notes = sorted({RULES[n].note for n in names if RULES[n].note})
        lines.append(f"| {family} | {', '.join(f'`{s}`' for s in short)} | {'; '.join(notes)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(table(), encoding="utf-8")
