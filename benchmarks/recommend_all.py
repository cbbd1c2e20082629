"""Top-20 lists for everybody, written to Parquet: seconds and memory above what the loaded model needs.

python benchmarks/recommend_all.py --data DIR     # DIR holds ml-1m/ratings.dat or ml-1m/ratings_notime.dat
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from truepair.data.catalogue import load
from truepair.recommender import Recommender


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    clicks = load("ml-1m", parser.parse_args().data)
    model = Recommender(dim=64, epochs=1, validation=0, n_unlabelled=1, n_extra=0, loss="bpr").fit(clicks)
    model.recommend(k=20)  # the first call pays for imports
    before, began = peak_mb(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lists.parquet"
        parts = model.recommend_in_parts(k=20)
        first = next(parts)
        with pq.ParquetWriter(path, first.schema) as file:
            file.write_table(first)
            for part in parts:
                file.write_table(part)
        seconds, rows = time.perf_counter() - began, pq.read_metadata(path).num_rows
    print(f"{clicks}: {rows:,} rows to Parquet in {seconds:.2f} s")
    print(f"peak memory {peak_mb():.0f} MB in all, {peak_mb() - before:.0f} MB of it for this step")


if __name__ == "__main__":
    main()
