"""The truth lab: what losses and samplers do where every label is known."""
