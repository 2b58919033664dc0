"""Printer of CUDA and MUSA."""
