"""The quality contest: exact sampling against what people use, every contestant tuned alike."""
