"""Another Workload than the one that a Reference brings along."""

from __future__ import annotations

from dataclasses import replace

from musacoder_verifier.reference import Reference

from musacoder_lsp.sites.reference.unbuildable import Unbuildable
from musacoder_lsp.sites.reference.values import made
from musacoder_lsp.sites.workload import Comment, parse_annotations


def override_inputs(reference: Reference, workload: str) -> Reference | Unbuildable:
    """`reference` with inputs as an annotation's text describes them, in the order of
    `Model.forward`, such as `x: f32[1024, 4096], n: 3`."""
    annotations = parse_annotations([Comment(0, f"# musacoder: {workload}")])
    if annotations.problems:
        return Unbuildable(annotations.problems[0].message)
    if not annotations.inputs:
        return Unbuildable(f"`{workload}` describes no input.")
    try:
        texts = [made(spec, annotations.values) for spec in annotations.inputs.values()]
    except ValueError as error:
        return Unbuildable(f"{error} in `{workload}`.")
    # Imported inside: the user's file need not call torch by its name.
    added = [
        "",
        "",
        "def get_inputs():",
        "    import torch",
        "",
        f"    return [{', '.join(texts)}]",
        "",
    ]
    source = reference.source.rstrip("\n") + "\n"
    kept = reference.lines[: source.count("\n")]
    source += "\n".join(added)
    ours = (None,) * (source.count("\n") + 1 - len(kept))
    return replace(reference, source=source, lines=kept + ours)
