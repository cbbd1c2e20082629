"""Lists beyond the best k: filters on a table of items, quotas, diversity, explanations."""
