"""Interactions: reading, simulating and splitting them."""
