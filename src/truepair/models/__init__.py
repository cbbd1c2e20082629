"""Models: rows of numbers for users and items, from encoders, closed forms and blends of both."""
