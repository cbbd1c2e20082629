"""Fuzzing: hostile inputs for everything that truepair reads; not part of the installed package."""
