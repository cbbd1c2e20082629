"""The page at /: users, items, a map, the model and the service, to look at."""
