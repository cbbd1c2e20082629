"""A description of the machine: versions, processor, threads, GPU."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import torch

from truepair.storage.versions import package_version

_PACKAGES = ("truepair", "numpy", "scipy", "torch", "numba", "triton", "implicit", "cornac")


def versions() -> dict[str, str | None]:
    """The versions of Python and of the relevant packages; None if not installed."""
    return {"python": platform.python_version()} | {name: package_version(name) for name in _PACKAGES}


def machine() -> dict[str, object]:
    """The machine as a dict of plain values."""
    return {
        "system": platform.platform(),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())],
    }


def cpu_model() -> str:
    """The processor's name, as reported by the system."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()
