"""Devices: what data sheets say of them, times the share of it that was measured in training."""

from __future__ import annotations

import re
from dataclasses import dataclass

from truepair.errors import InputError

GIGA, TERA = 1e9, 1e12

# Fitted on the measurements of docs/scale.md, all of them on one H200
_OF_PRODUCTS = 0.29  # of the sheet's fp32 flops: one side of these products has only d columns
_OF_MEMORY = 4.05 / 4.8  # a copy's bandwidth, measured, of the sheet's
_RECORDED, _LAUNCHED = 0.4e-3, 1.96e-3  # seconds of a step whatever it holds: as a CUDA graph, and without
_STREAMED = 5.3e-9  # seconds of a pair that comes from mapped files: gathered, copied, sorted

OF_LINK = 0.8
"""Of a link's bandwidth: an assumption, nothing was measured here over such links."""
NETWORK = 50 * GIGA
"""Bytes a second between the GPUs of several machines: 400 Gbit/s for each."""
ON_MACHINE = 8
"""GPUs of a machine."""
FITTING = 0.92
"""The share of a device's memory that may be planned: the rest is for CUDA's own and for gaps."""


@dataclass(frozen=True)
class Device:
    """Of one device: bytes of memory; flops and bytes a second; seconds of a step and of a pair."""

    name: str
    memory: float
    flops: float
    bandwidth: float
    peers: float  # bytes a second that it sends to others of its machine
    host: float  # bytes a second to and from main memory
    recorded_step: float = _RECORDED
    launched_step: float = _LAUNCHED
    pair: float = 0.0
    streamed_pair: float = _STREAMED
    latency: float = 20e-6  # seconds of a collective, within a machine
    of_products: float = _OF_PRODUCTS
    of_memory: float = _OF_MEMORY

    @property
    def is_gpu(self) -> bool:
        """Whether it is no core of a processor."""
        return self.name != "cpu-core"


DEVICES = {
    device.name: device
    for device in (
        Device("h200", 141 * GIGA, 67 * TERA, 4.8 * TERA, 450 * GIGA, 64 * GIGA),
        Device("h100", 80 * GIGA, 67 * TERA, 3.35 * TERA, 450 * GIGA, 64 * GIGA),
        Device("a100-80", 80 * GIGA, 19.5 * TERA, 2.039 * TERA, 300 * GIGA, 32 * GIGA),
        Device("l4", 24 * GIGA, 30.3 * TERA, 0.3 * TERA, 32 * GIGA, 32 * GIGA),
        Device(  # by the counted work of `cost.step_work`, at 0.07 ns a unit
            "cpu-core",
            *(4 * GIGA, 86 * GIGA, 15 * GIGA, 2 * GIGA, 15 * GIGA),
            recorded_step=1.4e-3,
            launched_step=1.4e-3,
            pair=140e-9,
            latency=300e-6,
            of_products=1.0,
            of_memory=1.0,
        ),
    )
}
"""Names of devices -> figures of public data sheets, with NVLink (SXM) where there is a choice."""

_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "tbit": 1e12 / 8}


def link_speed(text: str) -> float:
    """Bytes a second of a text such as 50GB/s or 400Gbit/s.

    >>> link_speed("50GB/s"), link_speed("400 Gbit/s")
    (50000000000.0, 50000000000.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]b(?:it)?)(?:/s|ps)?\s*", text, re.IGNORECASE)
    speed = float(found[1]) * _UNITS.get(found[2].lower(), 0.0) if found else 0.0
    if not speed:
        raise InputError(f"link = {text!r} is no speed; give one above 0 such as 50GB/s or 400Gbit/s.")
    return speed
