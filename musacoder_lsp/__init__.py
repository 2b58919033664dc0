"""The language server and the command line of MusaCoder."""

__version__ = "0.1.0"
