"""`truepair compare --seeds`: every seed is a training of its own."""

import json

import pytest
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.recommender.estimator import Recommender
from worlds import two_tastes


def test_every_seed_is_trained(tmp_path, monkeypatch):
    trained, fit = [], Recommender.fit

    def watched(self, *args, **options):
        trained.append((self.loss, self.seed))
        return fit(self, *args, **options)

    monkeypatch.setattr(Recommender, "fit", watched)
    table = two_tastes().to_table().to_pandas()
    table.to_csv(tmp_path / "clicks.csv", index=False)
    options = ["--losses", "bpr,infonce", "--seeds", "3", "--seed", "4", "--dim", "4", "--epochs", "2"]
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "clicks.csv"), *options, "-q", "--json"])
    found = json.loads(done.stdout)["losses"]
    assert trained == [(loss, seed) for loss in ("bpr", "infonce") for seed in (4, 5, 6)]
    for loss in found.values():
        assert len({run["test"] for run in loss["runs"]}) > 1
        assert loss["mean"] == pytest.approx(sum(run["test"] for run in loss["runs"]) / 3)
