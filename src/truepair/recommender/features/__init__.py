"""Features of items and users in a fit, and items that nobody has yet."""
