"""How long importing truepair takes, as a ratio to importing torch alone: medians over fresh interpreters.

python benchmarks/import_time.py
python benchmarks/import_time.py --quick    # one round of the first two
"""

from __future__ import annotations

import argparse
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round of the first two")
    quick = parser.parse_args().quick
    programs = dict(list(PROGRAMS.items())[: 2 if quick else None])
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(1 if quick else ROUNDS):
        for name, program in programs.items():  # in turns, so that a busy moment hits all alike
            times[name].append(seconds(program))
    torch = statistics.median(times["import torch"])
    for name, taken in times.items():
        print(f"{name:42} {statistics.median(taken) / torch:5.2f} x torch")


if __name__ == "__main__":
    main()
