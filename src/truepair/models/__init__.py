"""Models: vectors for users and items, trained (encoders) or computed (closed forms), and blends of both."""
