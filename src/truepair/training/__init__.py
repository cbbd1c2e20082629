"""Encoder, loss, sampler and interactions in; fitted matrices out."""
