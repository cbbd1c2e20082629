"""The study of the prior: how good estimates of τ are where it is known, and their worth in training."""
