"""One contestant in a process of its own: `contestants.py NAME FOLDER PART USERS SETTINGS`.

Prints a line of JSON for each stage that begins (start, reading, training, judging) and for each point of the
curve: iterations, seconds of training so far, NDCG@20. Judging is not counted. Before its own stages, a
contestant trains on a few pairs, so that code is loaded and compiled.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import spark_als
from topic_world import Judge, Vectors, part

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions

DIM = spark_als.DIM
NOT_INSTALLED = 3


class Curve:
    """What is printed of a contestant, and its clock."""

    def __init__(self, judge: Judge) -> None:
        self.judge, self.seconds, self.began = judge, 0.0, 0.0
        self.sample = judge.sample

    def stage(self, name: str) -> None:
        """A stage begins; the clock runs in training."""
        now = time.perf_counter()
        if name == "training":
            self.began = now
        elif name == "judging":
            self.seconds += now - self.began
        print(json.dumps({"stage": name, "at": now}), flush=True)

    def point(self, iterations: int, users: Vectors, items: Vectors) -> None:
        """Judge the vectors of the sample, and of all items."""
        found = {"iterations": iterations, "seconds": self.seconds, "ndcg": self.judge.score(users, items)}
        print(json.dumps(found), flush=True)


def few() -> Interactions:
    """Pairs to warm up with."""
    codes = np.arange(600)
    return Interactions(
        codes // 10, np.sort(codes.reshape(60, 10) * 7 % 50).ravel(), IdMap.range(60), IdMap.range(50)
    )


def truepair(curve: Curve, folder: Path, settings: dict[str, Any]) -> None:
    """MF with the given loss, engine and sampler."""
    import truepair as tp
    from truepair.losses import LOSSES
    from truepair.sampling import SAMPLERS

    given = dict(settings)
    if "l2" in given:
        given |= dict.fromkeys(("l2_users", "l2_items"), given.pop("l2"))
    engine, loss, sampler = (given.pop(name) for name in ("engine", "loss", "sampler"))
    options = [given.pop(f"{name} options", {}) for name in ("loss", "sampler", "encoder")]
    encoder = tp.MF(dim=DIM, **options[2])

    def job(data: Interactions, **changes: Any) -> tp.Job:
        made = LOSSES[loss](**options[0]).with_density(data.density)
        numbers = tp.Settings(**(given | changes), device="cpu")
        return tp.Job(encoder, made, SAMPLERS[sampler](**options[1]), data, numbers)

    def on_epoch(state: Any) -> None:
        curve.stage("judging")
        users, items = state.matrices()
        curve.point(state.epoch, users.numpy()[curve.sample], items.numpy())
        curve.stage("training")

    tp.fit(job(few(), epochs=1), engine=engine)
    curve.stage("reading")
    data = part(folder, "train")
    curve.stage("training")
    tp.fit(job(data), on_epoch, engine=engine)


def implicit(curve: Curve, folder: Path, settings: dict[str, Any]) -> None:
    """implicit's ALS on the CPU, by conjugate gradients as by default."""
    import implicit.cpu.als
    import threadpoolctl

    from truepair_lab.benchmarks.peers import csr_of

    def model(**changes: Any) -> Any:
        return implicit.cpu.als.AlternatingLeastSquares(factors=DIM, random_state=0, **(settings | changes))

    with threadpoolctl.threadpool_limits(1, "blas"):  # its own threads do the work
        model(iterations=1).fit(csr_of(few()), show_progress=False)
        curve.stage("reading")
        matrix, als = csr_of(part(folder, "train")), model()

        def callback(iteration: int, *rest: Any) -> None:
            curve.stage("judging")
            with threadpoolctl.threadpool_limits(2, "blas"):
                curve.point(iteration + 1, als.user_factors[curve.sample], als.item_factors)
            curve.stage("training")

        curve.stage("training")
        als.fit(matrix, show_progress=False, callback=callback)


CONTESTANTS: dict[str, Callable[[Curve, Path, dict[str, Any]], None]] = {
    "truepair": truepair,
    "implicit": implicit,
    "spark": spark_als.fit,
}


def main() -> int:
    name, folder, target, users, settings = sys.argv[1:]
    Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, this ends first, with its JVM
    curve = Curve(Judge(Path(folder), target, int(users)))
    curve.stage("start")
    try:
        CONTESTANTS[name](curve, Path(folder), json.loads(settings))
    except ModuleNotFoundError as error:
        print(json.dumps({"lacks": str(error)}), flush=True)
        return NOT_INSTALLED
    curve.stage("end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
