"""Packages that may be missing: a test that uses one is skipped then, with the reason."""

import pytest


class Extra:
    """A package that is imported when a test uses it. Used outside of tests, it skips the whole module."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(pytest.importorskip(self._name), attribute)


duckdb, pl = Extra("duckdb"), Extra("polars")
