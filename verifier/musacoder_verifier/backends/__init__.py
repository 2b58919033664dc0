"""What a kernel is compiled for and run on: one module per backend behind `base.Backend`."""
