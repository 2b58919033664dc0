"""One file per LSP method. Nothing outside this package and `server.py` knows LSP types."""
