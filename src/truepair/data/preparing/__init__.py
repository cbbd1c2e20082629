"""Preparing: any source -> a folder of memory-mapped arrays, out of core on DuckDB."""
