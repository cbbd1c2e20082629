"""Experiments: whole runs from data to a report."""
