"""The lines of the paper's studies -> docs/paper.md."""
