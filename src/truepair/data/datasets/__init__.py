"""Public datasets by name: fetching, checking, parsing."""
