"""The paper's experiments: presets, searches, runs, and the report that is made of their lines."""
