"""Files of truepair whose tensors and facts are changed, and whose checksum is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor

from fuzzing.mutations import ALPHABET, places_of, with_change
from truepair.storage.tensor_file import digest_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_TYPES = (torch.float64, torch.float32, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float16)


def _set(tensor: Tensor, place: int, number: float) -> Tensor:
    changed = tensor.clone()
    if changed.numel():
        limit = 2**62 if not changed.dtype.is_floating_point else float("inf")
        changed.view(-1)[place] = torch.tensor(max(min(number, limit), -limit)).to(changed.dtype)
    return changed


HOWS: dict[str, Callable[[Tensor, int], Tensor | None]] = {
    "dropped": lambda t, n: None,
    "zeros": lambda t, n: torch.zeros_like(t),
    "ones": lambda t, n: torch.ones_like(t),
    "empty": lambda t, n: t.reshape(-1)[:0],
    "no rows": lambda t, n: t[:0] if t.ndim else t,
    "fewer rows": lambda t, n: t[: max(len(t) - 1 - n % 3, 0)] if t.ndim else t,
    "more rows": lambda t, n: torch.cat([t, t[-1:]]) if t.ndim else t.reshape(1),
    "twice": lambda t, n: torch.cat([t, t]) if t.ndim else t,
    "other type": lambda t, n: t.to(_TYPES[n % len(_TYPES)]),
    "one number": lambda t, n: t.reshape(-1)[:1].reshape(()) if t.numel() else t,
    "one axis": lambda t, n: t.reshape(-1),
    "more axes": lambda t, n: t[None],
    "transposed": lambda t, n: t.T.contiguous() if t.ndim == 2 else t.flip(0) if t.ndim else t,
    "wider": lambda t, n: torch.cat([t, t], dim=1) if t.ndim == 2 else t,
    "a large first number": lambda t, n: _set(t, 0, 2.0**62),
    "a negative last number": lambda t, n: _set(t, -1, -1.0 - n),
    "another number": lambda t, n: _set(t, n % max(t.numel(), 1), float(n)),
    "NaN": lambda t, n: _set(t, n % max(t.numel(), 1), float("nan")) if t.dtype.is_floating_point else t,
    "infinity": lambda t, n: _set(t, n % max(t.numel(), 1), float("inf")) if t.dtype.is_floating_point else t,
    "all the same": lambda t, n: torch.full_like(t, 2**62 if t.dtype == torch.int64 else 1),
    "a changed byte": lambda t, n: _changed_byte(t, n),
}


def _changed_byte(tensor: Tensor, number: int) -> Tensor:
    if not tensor.numel() or not tensor.ndim:
        return tensor
    changed = tensor.contiguous().clone()
    content = changed.view(-1).view(torch.uint8)
    content[number % len(content)] ^= 1 + number % 255
    return changed


def change_cases(n_files: int) -> SearchStrategy[Any]:
    """Which file, and what is changed in it."""
    from hypothesis import strategies as st

    number = st.integers(0, 2**16)
    leaves: SearchStrategy[Any] = st.one_of(
        *(st.none(), st.booleans(), st.integers(-3, 40), st.text(ALPHABET, max_size=4)),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([2**31, 2**63, 10**30, -(10**400)]),
        st.sampled_from(["mf", "lightgcn", "ease", "full", "dns", "dpl", "auto", "cpu", "density"]),
    )
    values = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(ALPHABET, max_size=4), inner, max_size=3)
        ),
    ) | st.sampled_from([{"kind": "dpl"}, {"kind": "dns", "pool": 2**31}, {"kind": {"kind": "mf"}}, {}, []])
    return st.fixed_dictionaries(
        {
            "file": st.integers(0, n_files - 1),
            "tensors": st.lists(st.tuples(number, st.sampled_from(sorted(HOWS)), number), max_size=3),
            "facts": st.lists(st.tuples(number, st.booleans(), values), max_size=2),
            "depth": st.sampled_from([0] * 9 + [50, 900, 5000]),
        }
    )


def changed_file(
    tensors: Mapping[str, Tensor], facts: Any, kind: str, version: int, case: Mapping[str, Any]
) -> bytes:
    """The bytes of the file with the changes of a case."""
    tensors = dict(tensors)
    for which, how, number in case["tensors"]:
        if tensors:
            name = sorted(tensors)[which % len(tensors)]
            changed = HOWS[how](tensors.pop(name), number)
            tensors |= {} if changed is None else {name: changed.contiguous()}
    for which, drop, value in case["facts"]:
        places = places_of(facts)
        place = places[which % len(places)]
        facts = with_change(facts, place, value, drop=drop and bool(place))
    text = json.dumps(facts)
    if case["depth"] and text.endswith("}"):
        nested = "[" * case["depth"] + "]" * case["depth"]
        text = text[:-1] + (", " if len(text) > 2 else "") + f'"deep": {nested}}}'
    header = {"kind": kind, "version": str(version), "facts": text, "digest": digest_of(tensors, text)}
    return safetensors.torch.save(tensors, metadata=header)
