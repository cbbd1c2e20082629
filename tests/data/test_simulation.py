"""Simulated worlds: the truth is exact, the exposure is what it says, and the names are readable."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2, rankdata, spearmanr

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.simulation import EXPOSURES, World, simulate_world
from truepair.errors import InputError

Scores = npt.NDArray[np.floating]


def observed_mask(world: World) -> npt.NDArray[np.bool_]:
    mask = np.zeros(world.truth.shape, dtype=bool)
    mask[world.observed.users, world.observed.items] = True
    return mask


def auc(scores: Scores, positive: npt.NDArray[np.bool_]) -> float:
    """The chance that a random positive scores higher than a random other one."""
    n, m = positive.sum(), (~positive).sum()
    return float((rankdata(scores)[positive].sum() - n * (n + 1) / 2) / (n * m))


def mean_user_auc(world: World, scores: Scores) -> float:
    """How well `scores` rank each user's hidden positives above the user's true negatives."""
    unlabelled = ~observed_mask(world)
    users = [
        u for u in range(len(scores)) if 0 < (world.truth[u] & unlabelled[u]).sum() < unlabelled[u].sum()
    ]
    return float(np.mean([auc(scores[u, unlabelled[u]], world.truth[u, unlabelled[u]]) for u in users]))


@pytest.fixture(scope="module", params=EXPOSURES)
def world(request: pytest.FixtureRequest) -> World:
    return simulate_world(400, 500, exposure=request.param, seed=3)


# --- the truth -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exposure", EXPOSURES)
@pytest.mark.parametrize(
    ("tau", "density"), [(0.1, 0.05), (0.0, 0.05), (0.01, 0.01), (0.35, 0.2), (0.5, 0.5), (0.9, 0.05)]
)
def test_sizes_and_tau_are_exact(tau: float, density: float, exposure: str) -> None:
    world = simulate_world(37, 53, tau=tau, density=density, exposure=exposure)
    n_observed = round(density * 37 * 53)
    n_hidden = round(tau * (37 * 53 - n_observed))
    assert len(world.observed) == n_observed
    assert world.truth.sum() == n_observed + n_hidden
    assert world.tau == n_hidden / (37 * 53 - n_observed)


def test_observed_and_hidden_partition_the_positives(world: World) -> None:
    observed, hidden = observed_mask(world), world.truth & ~observed_mask(world)
    assert world.truth[observed].all()
    np.testing.assert_array_equal(world.hidden.csr().toarray() > 0, hidden)
    np.testing.assert_array_equal(world.positives.csr().toarray() > 0, world.truth)
    assert len(world.hidden) + len(world.observed) == len(world.positives)


def test_user_tau_is_each_users_own_prior(world: World) -> None:
    unlabelled = ~observed_mask(world)
    expected = [world.truth[u, unlabelled[u]].mean() for u in range(400)]
    np.testing.assert_allclose(world.user_tau, expected)
    np.testing.assert_allclose(np.average(world.user_tau, weights=unlabelled.sum(axis=1)), world.tau)


def test_user_without_unlabelled_items_has_tau_zero() -> None:
    ids = IdMap.range(2)
    observed = Interactions(np.array([0, 0]), np.array([0, 1]), ids, ids)
    one = np.ones((2, 1))
    world = World(observed, np.array([[1, 1], [1, 0]]), np.ones(2), one, one, np.zeros(2))
    assert world.user_tau.tolist() == [0.0, 0.5]
    assert world.tau == 0.5


@pytest.mark.parametrize("exposure", EXPOSURES)
def test_tau_zero_observes_every_positive(exposure: str) -> None:
    world = simulate_world(50, 60, tau=0, density=0.1, exposure=exposure)
    assert world.observed == world.positives
    assert len(world.hidden) == 0
    assert world.tau == 0
    assert (world.propensity == 1).all()
    assert (world.user_tau == 0).all()


def test_the_oracle_ranks_hidden_positives_far_above_chance(world: World) -> None:
    assert mean_user_auc(world, world.affinity) > 0.85


def test_taste_matters_beyond_popularity(world: World) -> None:
    popularity = np.broadcast_to(world.truth.sum(axis=0) * 1.0, world.truth.shape)
    assert mean_user_auc(world, popularity) < mean_user_auc(world, world.affinity) - 0.05


def test_a_low_rank_matrix_is_enough(world: World) -> None:
    """Within a user the affinity is an inner product of `dim` numbers: a rank-8 model can be the oracle."""
    assert world.tastes.shape == (400, 8)
    assert world.traits.shape == (500, 8)
    product = world.tastes @ world.traits.T
    np.testing.assert_allclose(world.affinity - world.activity[:, None], product, atol=1e-5)
    np.testing.assert_allclose(world.tastes.sum(axis=1), 1, atol=1e-5)


def test_more_noise_makes_the_truth_harder_to_rank() -> None:
    aucs = [mean_user_auc(w, w.affinity) for w in (simulate_world(200, 200, noise=x) for x in (0, 0.5, 5))]
    assert aucs[0] == 1.0
    assert aucs[0] > aucs[1] > aucs[2] + 0.1 > 0.6


def test_match_has_unit_spread() -> None:
    """Taste and quality weigh the same: the closed form of the spread is right for any `dim`."""
    for dim in (2, 8, 30):
        world = simulate_world(1500, 1500, dim=dim, density=0.01, tau=0)
        match = world.tastes @ (world.traits - world.traits.min(axis=1, keepdims=True)).T
        # the smallest share of a sparse mix is nearly 0, so what is left after quality is the match
        assert match.std() == pytest.approx(1, rel=0.1)


def test_popularity_and_activity_are_skewed_as_in_real_data(world: World) -> None:
    by_item = np.sort(world.truth.sum(axis=0))[::-1]
    by_user = np.sort(world.truth.sum(axis=1))[::-1]
    assert by_item[:100].sum() > 0.4 * by_item.sum()  # a fifth of the items
    assert by_user[:80].sum() > 0.3 * by_user.sum()  # a fifth of the users


# --- the exposure ----------------------------------------------------------------------------------


def exposure_chi2(world: World, chance: Scores) -> tuple[float, float]:
    """χ² of the observed counts against `chance` in 20 groups of items by popularity, and its 99.9% point."""
    popularity = world.truth.sum(axis=0)
    groups = np.array_split(np.argsort(popularity, kind="stable"), 20)
    statistic = 0.0
    for items in groups:
        expected = (popularity * chance)[items].sum()
        spread = (popularity * chance * (1 - chance))[items].sum()
        statistic += (world.observed.item_counts[items].sum() - expected) ** 2 / spread
    return statistic, float(chi2.ppf(0.999, len(groups)))


def test_random_exposure_does_not_depend_on_popularity() -> None:
    world = simulate_world(800, 800, exposure="random", seed=5)
    chance = np.full(800, len(world.observed) / len(world.positives))
    statistic, limit = exposure_chi2(world, chance)
    assert statistic < limit
    np.testing.assert_allclose(world.propensity, chance)
    popularity = world.truth.sum(axis=0)
    share = world.observed.item_counts / np.maximum(popularity, 1)
    assert abs(spearmanr(share[popularity > 50], popularity[popularity > 50]).statistic) < 0.15


def test_popularity_exposure_shows_the_popular() -> None:
    world = simulate_world(800, 800, exposure="popularity", seed=5)
    popularity = world.truth.sum(axis=0)
    share = world.observed.item_counts / np.maximum(popularity, 1)
    assert spearmanr(share[popularity > 50], popularity[popularity > 50]).statistic > 0.9
    flat = np.full(800, len(world.observed) / len(world.positives))
    statistic, limit = exposure_chi2(world, flat)
    assert statistic > 10 * limit


@pytest.mark.parametrize("skew", [0.5, 1.0, 2.0])
def test_propensity_is_the_chance_of_being_observed(skew: float) -> None:
    world = simulate_world(800, 800, exposure="popularity", skew=skew, seed=6)
    assert world.truth.sum(axis=0) @ world.propensity == pytest.approx(len(world.observed))
    statistic, limit = exposure_chi2(world, world.propensity)
    assert statistic < limit


def test_propensity_over_many_worlds() -> None:
    """The mean share of positives observed, from the least to the most popular item of 300 small worlds."""
    seen, liked, expected = np.zeros(12), np.zeros(12), np.zeros(12)
    for seed in range(300):
        world = simulate_world(30, 12, tau=0.3, density=0.2, exposure="popularity", seed=seed)
        popularity = world.truth.sum(axis=0)
        rank = np.argsort(np.argsort(popularity, kind="stable"))
        np.add.at(seen, rank, world.observed.item_counts)
        np.add.at(liked, rank, popularity)
        np.add.at(expected, rank, popularity * world.propensity)
    np.testing.assert_allclose(seen / liked, expected / liked, atol=0.025)


def test_skew_zero_is_random_exposure_and_skew_sharpens() -> None:
    random = simulate_world(100, 100, exposure="random")
    flat = simulate_world(100, 100, exposure="popularity", skew=0)
    assert flat.observed == random.observed
    tops = [
        np.sort(simulate_world(100, 100, exposure="popularity", skew=skew).observed.item_counts)[-20:].sum()
        for skew in (0, 1, 2, 100)
    ]
    assert tops == sorted(tops)
    assert tops[0] < tops[-1]


# --- the same again --------------------------------------------------------------------------------


@pytest.mark.parametrize("exposure", EXPOSURES)
def test_same_seed_same_world(exposure: str) -> None:
    one, two = (simulate_world(60, 70, exposure=exposure, seed=9) for _ in range(2))
    assert one.observed == two.observed
    for name in ("truth", "propensity", "tastes", "traits", "activity"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_another_seed_another_world() -> None:
    worlds = [simulate_world(60, 70, seed=seed) for seed in range(4)]
    assert len({world.observed.hash for world in worlds}) == 4
    assert len({world.truth.tobytes() for world in worlds}) == 4


def test_exposure_does_not_change_the_truth() -> None:
    one, two = (simulate_world(60, 70, exposure=exposure) for exposure in EXPOSURES)
    np.testing.assert_array_equal(one.truth, two.truth)
    assert one.observed != two.observed


def test_a_larger_tau_only_adds_positives() -> None:
    small, large = (simulate_world(60, 70, tau=tau).truth for tau in (0.1, 0.2))
    assert (large >= small).all()


# --- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "dim"), [(1, 2), (1000, 8), (1600, 8), (1601, 8), (5000, 20)])
def test_item_names_are_unique_and_readable(n: int, dim: int) -> None:
    names = simulate_world(3, n, dim=dim, density=0.5).observed.item_ids.ids.to_pylist()
    assert len(set(names)) == len(names) == n
    assert names == sorted(names)
    pattern = re.compile(r"The [A-Z][a-z]+ [A-Z][a-z]+(, Part [2-9])? \((?:[a-z]+|genre (?:17|18|19|20))\)")
    assert all(pattern.fullmatch(name) for name in names)
    assert any("Part" in name for name in names) == (n > 1600)


def test_the_genre_in_a_name_is_the_items_strongest_taste(world: World) -> None:
    names = world.observed.item_ids.ids.to_pylist()
    genres = np.array([re.search(r"\((.*)\)", name)[1] for name in names])
    strongest = world.traits.argmax(axis=1)
    assert len(set(zip(genres, strongest, strict=True))) == len(set(genres)) == 8


def test_user_names_are_padded_so_that_codes_follow_numbers() -> None:
    assert simulate_world(3, 5, density=0.2).observed.user_ids.ids.to_pylist() == [
        "user 0001",
        "user 0002",
        "user 0003",
    ]
    ids = simulate_world(10_001, 2, density=0.2).observed.user_ids.ids.to_pylist()
    assert ids[0] == "user 00001"
    assert ids[-1] == "user 10001"


def test_ids_cover_everyone_also_without_an_interaction() -> None:
    world = simulate_world(50, 60, density=0.001, tau=0.01)
    assert (world.observed.n_users, world.observed.n_items) == (50, 60)
    assert (world.observed.user_counts == 0).any()


# --- the value itself ------------------------------------------------------------------------------


def test_repr_tells_sizes_exposure_and_tau() -> None:
    assert repr(simulate_world(100, 200, exposure="popularity", skew=1.5, seed=4)) == (
        "<World popularity exposure (skew 1.5), seed 4: 100 users x 200 items, "
        "2,900 positives, 1,000 of them observed, τ = 0.1>"
    )


def test_worlds_are_frozen(world: World) -> None:
    with pytest.raises(FrozenInstanceError):
        world.recipe = "mine"  # type: ignore[misc]
    for name in ("truth", "propensity", "tastes", "traits", "activity"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(world, name)[:] = 0


def test_affinity_is_single_precision(world: World) -> None:
    assert world.affinity.dtype == np.float32
    assert world.truth.dtype == np.bool_


def test_shapes_must_fit(world: World) -> None:
    with pytest.raises(InputError, match=r"propensity has shape \(3,\); <Interactions.* needs \(500,\)\."):
        replace(world, propensity=np.ones(3))
    with pytest.raises(InputError, match=r"truth has shape \(500, 400\).* needs \(400, 500\)"):
        replace(world, truth=world.truth.T)


def test_observed_pairs_must_be_positive(world: World) -> None:
    truth = world.truth.copy()
    truth[world.observed.users[:2], world.observed.items[:2]] = False
    with pytest.raises(
        InputError,
        match="2 observed pairs are not positive in `truth`; set them to True there",
    ):
        replace(world, truth=truth)


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"tau": -0.1},
            r"tau = -0\.1 is out of range; it must be a finite number ≥ 0 and < 1\. It is (a|the) share",
        ),
        ({"tau": 1}, r"tau = 1 is out of range"),
        ({"tau": float("nan")}, r"tau = nan is out of range"),
        ({"density": 0}, r"density = 0 is out of range; it must be a finite number > 0 and < 1\."),
        ({"density": 1.0}, r"density = 1\.0 is out of range"),
        (
            {"tau": 0.6, "density": 0.5},
            r"tau = 0\.6 and density = 0\.5 add up to more than 1; lower one of them",
        ),
        (
            {"density": 1e-6},
            r"density = 1e-06 of 12 pairs is no pair; raise it to 0\.083 or more",
        ),
        ({"exposure": "popular"}, r"exposure = 'popular' is not known; .*Did you mean 'popularity'\?"),
        ({"dim": 1}, r"dim = 1 is out of range; it must be a whole number ≥ 2"),
        ({"skew": -1}, r"skew = -1 is out of range; it must be a finite number ≥ 0 and ≤ 100"),
        ({"noise": -1}, r"noise = -1 is out of range"),
        ({"noise": float("inf")}, r"noise = inf is out of range"),
        ({"seed": -1}, r"seed = -1 is out of range; it must be a whole number ≥ 0"),
        ({"n_users": 0}, r"n_users = 0 is out of range; it must be a whole number ≥ 1"),
        ({"n_items": 2.5}, r"n_items = 2\.5 is out of range"),
    ],
)
def test_impossible_worlds_are_errors_with_a_remedy(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate_world(**({"n_users": 3, "n_items": 4} | wrong))  # type: ignore[arg-type]
