"""The benchmarks of full-catalogue training on tiny worlds. Nothing is timed."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from types import SimpleNamespace

import pytest

from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair_lab.benchmarks import Options, full
from truepair_lab.benchmarks.plots import draw_scaling

pytestmark = pytest.mark.long  # the pages of the studies and what made them

QUICK = Options(rounds=1, quick=True)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A world that is made here in the place of MovieLens-1M, and small vectors."""
    split = split_random(simulate_world(40, 30, density=0.2).observed, test=0.2, valid=0.1)
    monkeypatch.setattr(full, "load_material", lambda *given, **named: SimpleNamespace(holdout=split))
    plans = [full.Plan(dim, replace(full.SETTINGS, learning_rate=0.01), beside=True) for dim in (4, 8)]
    monkeypatch.setattr(full, "PLANS", plans)
    monkeypatch.setattr(full, "IALS", {"factors": 4, "regularization": 1.0, "alpha": 5.0})


def test_it_is_told_how_soon_a_run_is_near_its_end(monkeypatch):
    score = iter([0.10, 0.20, 0.199, 0.2005])
    curve = [(float(second), next(score)) for second in range(1, 5)]
    assert full._until_near(curve) == (2.0, 0.2005)


def test_full_catalogue_training_beside_ials():
    pytest.importorskip("implicit")
    outcome = full.full_quality(QUICK)
    assert [row.peer for row in outcome.rows] == [None, "iALS", "iALS"] * 2
    assert all(row.value > 0 and row.passed is None for row in outcome.rows)
    assert "on validation" in outcome.rows[2].what


def test_plans_that_differ_in_their_batches_alone_have_names_of_their_own(monkeypatch):
    monkeypatch.setattr(full, "_ials", lambda split, options, outcome: (1.0, 0.5))
    settings = [replace(full.SETTINGS, learning_rate=0.01, batch_size=size) for size in (8, 16)]
    monkeypatch.setattr(full, "PLANS", [full.Plan(4, each) for each in settings])
    outcome = full.full_quality(QUICK)
    assert len({row.what for row in outcome.rows}) == len(outcome.rows) == 6
    assert len(outcome.rounds) == 2


def test_no_ratio_is_good_enough_for_lower_quality(monkeypatch):
    monkeypatch.setattr(full, "_ials", lambda split, options, outcome: (1e9, 2.0))  # slow, and out of reach
    outcome = full.full_quality(Options(rounds=1))
    assert [row.bar for row in outcome.rows] == [None, full.RATIO_BAR, 1.0] * 2
    assert [row.passed for row in outcome.rows] == [None, True, False] * 2


def test_without_implicit_its_own_figures_are_told(monkeypatch):
    def absent(*given):
        raise InputError("iALS comes from implicit: pip install 'truepair[bench]'.")

    monkeypatch.setattr(full, "solved", absent)
    outcome = full.full_quality(QUICK)
    assert [row.peer for row in outcome.rows] == [None, None]
    assert "pip install" in outcome.skipped[0]


def test_costs_have_a_line_a_loss_and_one_for_the_products(tmp_path, monkeypatch):
    axes = {"dim": ("d", (2, 4), lambda x: full.Point(users=30, items=40, pairs=200, dim=x))}
    monkeypatch.setattr(full, "AXES", axes)
    outcome = full.full_scaling(QUICK)
    assert set(outcome.data["dim"]["engines"]) == {*full.CURVES, full.FLOOR}
    assert len(outcome.rows) == 3
    draw_scaling(outcome.data, tmp_path / "full.svg")
    assert ET.parse(tmp_path / "full.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("point", sorted({make(x) for _, xs, make in full.AXES.values() for x in xs}))
def test_every_world_of_the_costs_can_be_had(point):
    assert 0 < point.pairs / (point.users * point.items) < 0.5
