"""Spec: the whole description of a model, made once from parameters of any source."""

from truepair.spec.spec import Spec

__all__ = ["Spec"]
