"""The page at /: people, items, a map, the model and the service, to look at."""
