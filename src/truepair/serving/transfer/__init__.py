"""Stores as files, and files into stores."""
