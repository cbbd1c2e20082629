"""Searches for parameters: trials, and what proposes them: automatic settings, and `tune` by Optuna."""
