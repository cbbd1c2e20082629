"""Spec: the whole description of a model, made once from parameters of any source."""

from truepair.spec.spec import HOLD_OUTS, SEARCHED, Spec

__all__ = ["HOLD_OUTS", "SEARCHED", "Spec"]
