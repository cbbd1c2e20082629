"""Automatic settings: temperature, popularity, dimension, epochs and the blend with EASE, from the data."""
