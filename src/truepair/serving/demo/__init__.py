"""`truepair serve --demo`: data, two models and simulated visitors."""
