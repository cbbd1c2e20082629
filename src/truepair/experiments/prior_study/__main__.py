"""`python -m truepair.experiments.prior_study`: run studies of the prior, and write the page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # batches are small; threads would wait for each other


def main(args: list[str] | None = None) -> int:
    """Run what is asked for; the exit code is 1 after an error."""
    from truepair.errors import TruepairError
    from truepair.experiments.prior_study.report import LINES, PAGE, rebuild
    from truepair.experiments.prior_study.running import EVERY, run

    parser = argparse.ArgumentParser(prog="python -m truepair.experiments.prior_study", description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"which to run: {', '.join(EVERY)}")
    parser.add_argument("--lines", type=Path, default=LINES, help="the folder of JSON lines (%(default)s)")
    parser.add_argument("--data-dir", type=Path, help="the folder of datasets; else TRUEPAIR_DATA")
    parser.add_argument("--device", default="auto", help="of the trainings: auto, cpu, cuda (%(default)s)")
    parser.add_argument(
        "--report", type=Path, nargs="?", const=PAGE, metavar="PAGE", help=f"write the page ({PAGE})"
    )
    told = parser.parse_args(args)
    if not told.studies and told.report is None:
        parser.error("nothing to do: name a study, or give --report")
    try:
        run(told.studies, told.lines, lambda text: print(text, file=sys.stderr), told.data_dir, told.device)
        if told.report is not None:
            print(rebuild(told.lines, told.report))
    except TruepairError as error:
        print(f"prior_study: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
