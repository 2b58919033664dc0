"""The part of the verifier that runs in the user's interpreter: standard library and torch only."""
