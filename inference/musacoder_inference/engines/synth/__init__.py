"""synth: native kernels by rules, without a model.

Graph JSON (docs/graph.md) -> intermediate form (`ir`) -> kernels (`fuse`) -> C++, CUDA or MUSA.
"""
