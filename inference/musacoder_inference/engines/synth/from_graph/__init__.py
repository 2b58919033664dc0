"""From the exported graph to the intermediate form: one file per family of operators."""

from musacoder_inference.engines.synth.from_graph import (
    indexing,
    layout,
    matmul,
    normalization,
    pointwise,
    pooling,
    reductions,
)
from musacoder_inference.engines.synth.from_graph.builder import read_graph
from musacoder_inference.engines.synth.from_graph.registry import RULES

__all__ = [
    "RULES", "indexing", "layout", "matmul", "normalization", "pointwise", "pooling", "read_graph",
    "reductions",
]  # fmt: skip
