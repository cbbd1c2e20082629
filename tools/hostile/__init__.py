"""Hostile requests to a service, by raw sockets."""
