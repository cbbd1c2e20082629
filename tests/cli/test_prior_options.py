"""The options of `truepair prior` reach the estimate."""

from typer.testing import CliRunner

import truepair.prior
from truepair.cli.main import app
from truepair.errors import InputError
from worlds import two_tastes


def test_resamples_seed_and_device_are_passed_on(tmp_path, monkeypatch):
    given = []

    def estimate_prior(pairs, **options):
        given.append((len(pairs), options))
        raise InputError("seen")

    monkeypatch.setattr(truepair.prior, "estimate_prior", estimate_prior)
    two_tastes().to_table().to_pandas().to_csv(tmp_path / "clicks.csv", index=False)
    options = ["--resamples", "7", "--seed", "5", "--device", "cpu", "-q"]
    done = CliRunner().invoke(app, ["prior", str(tmp_path / "clicks.csv"), *options])
    assert done.exit_code == 1
    ((pairs, passed),) = given
    assert pairs == 240
    assert {"resamples": 7, "seed": 5, "device": "cpu"}.items() <= passed.items()
