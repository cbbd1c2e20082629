"""Tables with one row for each item or user, and their columns as features."""
