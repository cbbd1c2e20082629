"""Commands for a running service: its store of events, and the version of the model that it serves."""
