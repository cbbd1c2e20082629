"""Prepared data: interactions in a folder of memory-mapped arrays."""
