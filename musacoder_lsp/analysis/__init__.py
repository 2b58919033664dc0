"""Parsing away from the server's loop: a child process that finds Sites and builds References."""
