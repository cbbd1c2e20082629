"""Files that appear whole or not at all, tensors in one file, and compiled code kept on disk."""
