"""Rows of a source: what they weigh, and the pairs that they make."""
