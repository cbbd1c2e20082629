"""Adapters: truepair behind the interfaces of other libraries."""
