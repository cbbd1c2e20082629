"""The lines of the truth lab -> docs/truth.md."""
