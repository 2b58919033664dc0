"""What a forked child does, one module per kind: `main(channel, spec)` runs and returns."""
