"""iALS against its definition, dense and in float64, and against implicit where both minimise the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from truepair.data.interactions import Interactions
from truepair.errors import InputError, TrainingError
from truepair_lab.paper import ials
from truepair_lab.paper.ials import IALS, Sweeps
from worlds import two_tastes


@pytest.fixture(scope="module")
def data() -> Interactions:
    """Rows with few and with many pairs, and without any."""
    pairs = two_tastes(n_users=40, n_items=25, each=6)
    generous = np.array([(0, item) for item in range(20)])
    users, items = np.unique(np.concatenate([np.stack([pairs.users, pairs.items], 1), generous]), axis=0).T
    kept = (users != 7) & (items != 3)
    return Interactions(users[kept], items[kept], pairs.user_ids, pairs.item_ids)


def strengths(settings: IALS, data: Interactions) -> tuple[np.ndarray, np.ndarray]:
    """λ_r by its definition."""
    seen = data.csr().toarray() > 0
    users = seen.sum(1) + settings.unobserved * data.n_items
    items = seen.sum(0) + settings.unobserved * data.n_users
    every = np.concatenate([users, items])
    factor = settings.regularization * every.sum() / (every**settings.exponent).sum()
    return factor * users**settings.exponent, factor * items**settings.exponent


def by_rows(seen: np.ndarray, others: np.ndarray, unobserved: float, strength: np.ndarray) -> np.ndarray:
    """The normal equations, row by row."""
    return np.stack(
        [
            np.linalg.solve(
                others[row].T @ others[row] + unobserved * others.T @ others + own * np.eye(others.shape[1]),
                others[row].sum(0),
            )
            for row, own in zip(seen, strength, strict=True)
        ]
    )


@pytest.mark.parametrize("room", [1, 1 << 22])
@pytest.mark.parametrize(
    "settings",
    [IALS(4, 0.1, 0.01), IALS(16, 0.5, 0.1, 0.0), IALS(8, 0.003, 1.0, 0.5, 1.0), IALS(32, 1.0, 0.001, 1.5)],
)
def test_a_sweep_solves_every_row(
    data: Interactions, settings: IALS, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ials._ROOM, "cpu", room)
    run, seen = Sweeps(settings, data, seed=3), data.csr().toarray() > 0
    of_users, of_items = strengths(settings, data)
    for _ in range(3):
        items = run.items.double().numpy()
        run.sweep()
        users = by_rows(seen, items, settings.unobserved, of_users)
        np.testing.assert_allclose(run.users.numpy(), users, rtol=1e-3, atol=2e-5)
        again = by_rows(seen.T, run.users.double().numpy(), settings.unobserved, of_items)
        np.testing.assert_allclose(run.items.numpy(), again, rtol=1e-3, atol=2e-5)
    assert not run.users[7].any()
    assert not run.items[3].any()


def objective(data: Interactions, settings: IALS, users: np.ndarray, items: np.ndarray) -> float:
    """L by its definition."""
    scores, seen = users @ items.T, data.csr().toarray() > 0
    of_users, of_items = strengths(settings, data)
    fit = ((scores[seen] - 1) ** 2).sum() + settings.unobserved * (scores**2).sum()
    return float(fit + of_users @ (users**2).sum(1) + of_items @ (items**2).sum(1))


def test_every_sweep_lowers_the_objective(data: Interactions) -> None:
    settings = IALS(6, 0.2, 0.02, 0.7)
    run, values = Sweeps(settings, data), []
    for _ in range(6):
        run.sweep()
        values.append(objective(data, settings, run.users.double().numpy(), run.items.double().numpy()))
    assert all(later < earlier for earlier, later in pairwise(values))


@pytest.mark.parametrize("alpha", [4.0, 30.0])
def test_without_an_exponent_it_is_implicit_s(data: Interactions, alpha: float) -> None:
    """implicit: Σ_observed alpha (s − 1)² + Σ_others s² + reg ‖·‖². With T = alpha / (alpha − 1), w =
    1 / (alpha − 1) and λ_r = reg / alpha, its vectors are these times √T."""
    als = pytest.importorskip("implicit.als")
    reg, stretch = 3.0, alpha / (alpha - 1)
    one = IALS(8, 1 / (alpha - 1), 1.0, 0.0)
    (own,) = set(np.round(strengths(one, data)[0], 9))
    run = Sweeps(IALS(8, 1 / (alpha - 1), reg / alpha / own, 0.0), data, seed=1)
    peer = als.AlternatingLeastSquares(
        factors=8, regularization=reg, alpha=alpha, iterations=4, use_cg=False, use_gpu=False, num_threads=1
    )
    peer.item_factors = (run.items * stretch**0.5).numpy().copy()
    peer.user_factors = np.zeros((data.n_users, 8), np.float32)
    peer.fit(sp.csr_matrix(data.csr()), show_progress=False)
    for _ in range(4):
        run.sweep()
    np.testing.assert_allclose(run.users.numpy() * stretch**0.5, peer.user_factors, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(run.items.numpy() * stretch**0.5, peer.item_factors, rtol=1e-3, atol=1e-4)


def test_a_seed_gives_the_same_vectors(data: Interactions) -> None:
    first, again, other = (Sweeps(IALS(8), data, seed=seed) for seed in (0, 0, 1))
    for run in (first, again, other):
        run.sweep()
    assert torch.equal(first.items, again.items)
    assert not torch.equal(first.items, other.items)


def test_what_is_not_definite_is_solved_in_double_precision_or_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    given = rows, torch.full((1, 8), 0.1, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.bool)
    plain, real = ials._block_solution(*given), torch.linalg.cholesky_ex

    def unsolvable(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        root, info = real(matrix)
        return root, info + int(matrix.dtype == torch.float32)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", unsolvable)
    found = ials._block_solution(*given)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda matrix: (matrix, torch.ones(1)))
    with pytest.raises(TrainingError, match="raise regularization"):
        ials._block_solution(*given)


@pytest.mark.parametrize(
    "wrong", [{"dim": 0}, {"unobserved": 0}, {"regularization": -1}, {"exponent": -0.1}, {"init_scale": 0}]
)
def test_wrong_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        IALS(**wrong)  # type: ignore[arg-type]
