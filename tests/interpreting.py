"""Triton's interpreter without two things that it does in vain: almost half of its work in small kernels.

It prepares its language at each call of a function in a kernel, as its launch has done already. And it
computes whether whole numbers overflow, which it only tells when it debugs.
"""

import dataclasses
from types import FunctionType

from triton.runtime import interpreter

_prepare, _launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
_prepared: set[str] = set()  # the modules whose functions have run in this launch


def _prepare_once(function: FunctionType) -> object:
    """What a module sees of the language is the same for all of its functions."""
    module = function.__globals__["__name__"]
    if module in _prepared:
        return None
    _prepared.add(module)
    return _prepare(function)


def _launch_anew(self: interpreter.GridExecutor, *args: object, **kwargs: object) -> None:
    """A launch takes back at its end what it prepared."""
    _prepared.clear()
    _launch(self, *args, **kwargs)


def interpret_without_waste() -> None:
    """All launches from now on."""
    interpreter._patch_lang, interpreter.GridExecutor.__call__ = _prepare_once, _launch_anew
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=builder.options.debug)
