"""The lines of the truth lab -> docs/lab/truth.md."""
