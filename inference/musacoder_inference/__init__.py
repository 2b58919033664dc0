"""Engines that write kernels; knows no LSP and starts no compiler."""
