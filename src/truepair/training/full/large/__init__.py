"""One device, large data: pairs that stay in main memory, and Adam for tables of many rows."""
