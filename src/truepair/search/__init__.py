"""Searches for parameters: trials, and what proposes them: automatic settings, and Optuna's TPE."""
