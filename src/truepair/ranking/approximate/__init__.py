"""Approximate top-k: an index over the items, used only where its measured recall is high enough."""
