"""Sources of rows: a path, a table in memory -> raw columns."""
