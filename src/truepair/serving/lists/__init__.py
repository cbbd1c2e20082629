"""Lists on request: histories with events, many requests in one product."""
