"""The five stages of a Verdict, one module each, in the order of `verdict.STAGES`."""
