"""A fitted model moves on: new interactions, new users and items, and what is forgotten."""
