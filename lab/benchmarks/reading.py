"""How long reading takes in a fresh interpreter, against pandas' parser where that can read the file.

    python benchmarks/reading.py --data DIR     # DIR holds ml-1m/, gowalla/, ml-100k/ … as distributed

A folder may hold some of them; what is missing is skipped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FILES = {
    "ml-100k/u.data": r"pd.read_csv(path, sep='\t', header=None)",
    "ml-1m/ratings_notime.dat": "pd.read_csv(path, sep='::', engine='python', header=None)",
    "gowalla/train.txt": None,
    "yelp2018/train.txt": None,
}
PROGRAM = """
import sys, time
import pandas as pd
from truepair.data.reading import read_interactions
path = sys.argv[1]
began = time.perf_counter(); data = read_interactions(path); ours = time.perf_counter() - began
line = f"{{data}}: {{ours:.2f}} s"
if {peer!r} is not None:
    began = time.perf_counter(); {peer}; theirs = time.perf_counter() - began
    line += f", {{ours / theirs:.2f}} x the parser of pandas alone"
print(line)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the datasets, one folder each")
    data = parser.parse_args().data
    for name, peer in FILES.items():
        if not (data / name).exists():
            print(f"{name}: not in {data}, skipped")
            continue
        program = PROGRAM.format(peer=peer)
        out = subprocess.run(
            [sys.executable, "-c", program, str(data / name)], capture_output=True, text=True, check=True
        )
        print(f"{name}: {out.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
