"""Top-20 lists for everybody, written to Parquet by a fresh process: seconds and peak memory (on Linux).

python benchmarks/recommend_all.py --data DIR     # DIR holds ml-1m/ratings.dat or ml-1m/ratings_notime.dat
python benchmarks/recommend_all.py --quick        # a small simulated world
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from truepair.data.datasets.loading import load
from truepair.data.simulation import simulate_world
from truepair.recommender.estimator import Recommender

PROGRAM = r"""
import re, sys, time
import pyarrow.parquet as pq
from truepair.recommender.estimator import Recommender

def peak():  # of this process alone: getrusage would count what its parent had before
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 1024

imported = peak()
model = Recommender.load(sys.argv[1])
began = time.perf_counter()
parts = model.recommend_in_parts(k=20)
first = next(parts)
with pq.ParquetWriter(sys.argv[2], first.schema) as file:
    file.write_table(first)
    for part in parts:
        file.write_table(part)
seconds = time.perf_counter() - began
rows = pq.read_metadata(sys.argv[2]).num_rows
print(f"{rows:,} rows in {seconds:.2f} s; peak {peak():.0f} MB, {peak() - imported:.0f} MB above the imports")
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    parser.add_argument("--quick", action="store_true", help="a small simulated world instead")
    args = parser.parse_args()
    clicks = simulate_world(60, 50, density=0.1).observed if args.quick else load("ml-1m", args.data)
    model = Recommender(loss="bpr", sampler="uniform", dim=64, epochs=1, validation=0, n_unlabelled=1)
    model.fit(clicks)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("model.truepair", "lists.parquet")]
        model.save(paths[0])
        print(clicks, flush=True)
        subprocess.run([sys.executable, "-c", PROGRAM, *paths], check=True)


if __name__ == "__main__":
    main()
