"""Sources of rows: a path, a table in memory, a database -> raw columns."""
