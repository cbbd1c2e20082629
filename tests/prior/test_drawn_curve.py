"""The figure of the prior: the drawn curve is c·F, also where the plateau c is far below 1."""

from types import SimpleNamespace

import numpy as np
import pytest

from truepair.prior.holdout_scores import Evidence
from truepair.prior.plateau import fit_plateau
from truepair.prior.score_counts import count_cells
from truepair.reporting.prior_figure import held_out_shares


def test_the_curve_explains_as_many_held_out_pairs_as_there_are():
    rng = np.random.default_rng(0)
    users, held_out_users = rng.integers(0, 50, size=20_000), rng.integers(0, 50, size=1_000)
    scores = rng.normal(size=20_000) + 3 * (rng.random(20_000) < 0.2)
    evidence = Evidence(
        held_out_users, rng.normal(size=1_000) + 3, users, scores, np.ones(20_000), np.full(50, 20)
    )
    cells = count_cells(evidence)
    curve = fit_plateau(cells)
    assert curve.share < 0.4  # a fifth of the unlabelled pairs are hidden positives, four for each held out
    _, _, fitted = held_out_shares(SimpleNamespace(cells=cells, curve=curve))
    held_out, unlabelled = cells.by_score
    assert fitted @ (held_out + unlabelled) == pytest.approx(held_out.sum(), rel=0.02)
