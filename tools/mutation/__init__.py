"""Mutation tests: small changes of the source that the tests should notice."""
