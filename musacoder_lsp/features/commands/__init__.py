"""One file per command of `workspace/executeCommand`."""
