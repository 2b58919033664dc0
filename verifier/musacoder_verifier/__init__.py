"""Compile, check, police and time a Candidate against its Reference; knows no LSP and no model."""
