"""Printer of C++17 with OpenMP."""
