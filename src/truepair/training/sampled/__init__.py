"""Fused engines for losses over drawn items."""
