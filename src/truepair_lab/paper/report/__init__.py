"""The lines of the paper's studies -> docs/lab/paper.md."""
