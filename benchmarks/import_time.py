"""How long importing truepair takes, as a ratio to importing torch alone: medians over fresh interpreters.

python benchmarks/import_time.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 9
PROGRAMS = {
    "import torch": "import torch",
    "import truepair": "import truepair",
    "every public name of truepair used": "import truepair as tp; [getattr(tp, n) for n in tp.__all__]",
}


def seconds(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(ROUNDS):
        for name, program in PROGRAMS.items():  # in turns, so that a busy moment hits all alike
            times[name].append(seconds(program))
    torch = statistics.median(times["import torch"])
    for name, taken in times.items():
        print(f"{name:42} {statistics.median(taken) / torch:5.2f} x torch")


if __name__ == "__main__":
    main()
