"""Metrics per user, their averages, and whether a difference is real."""
