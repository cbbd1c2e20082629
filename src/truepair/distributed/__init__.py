"""Training on many devices: what it costs before it begins, and clusters of Ray and Spark that start it."""
