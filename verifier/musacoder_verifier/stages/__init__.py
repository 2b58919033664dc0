"""The stages of a Verdict, one module each: collect, compile, correctness, legality, timing, and
the baseline of the timing, which is measured once per Reference."""
