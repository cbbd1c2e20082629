"""Updates: a fitted model goes on from where it is, with new users, new items and new pairs."""

import numpy as np
import pytest
import torch

import truepair as tp
from loss_values import WeightedInfoNCE
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError
from truepair.recommender.estimator import Recommender

SMALL = {"auto": False, "dim": 16, "epochs": 12, "device": "cpu", "temperature": 0.2, "popularity": 0.4}
SAMPLED = {
    "auto": False,
    "loss": "bpr",
    "sampler": "uniform",
    "dim": 16,
    "epochs": 12,
    "validation": 0,
    "device": "cpu",
}


def only(data, rows):
    """These rows, with the users and items that occur in them."""
    kept = data.take(rows)
    return tp.read_interactions(kept.to_table())


class Launch:
    """A world of four tastes. Some users and items arrive later; a fifth of all pairs is for judging."""

    def __init__(self):
        chance = np.random.default_rng(0)
        rows = [chance.choice(np.arange(u % 4, 120, 4), 10, replace=False) for u in range(200)]
        users, items = np.repeat(np.arange(200), 10), np.concatenate(rows)
        names = [IdMap.of([f"{what}{k:03}" for k in range(n)]) for what, n in (("u", 200), ("i", 120))]
        self.world = world = Interactions(users, items, *names)
        self.late_users, self.late_items = (chance.random(n) < 0.2 for n in (world.n_users, world.n_items))
        judged = chance.random(len(world)) < 0.2
        late = self.late_users[world.users] | self.late_items[world.items]
        self.late = late | (chance.random(len(world)) < 0.1)
        self.old, self.new = only(world, ~self.late & ~judged), only(world, self.late & ~judged)
        self.known = only(world, ~judged)
        self.judged = world.take(judged)

    def hits(self, model, users=None, items=None):
        """How many of the judged pairs of these users and items are in their lists of 10."""
        rows = np.ones(len(self.judged), dtype=bool)
        rows &= True if users is None else users[self.judged.users]
        rows &= True if items is None else items[self.judged.items]
        wanted = self.judged.take(rows).to_table()
        names = wanted.column("user").unique()
        lists = model.recommend(names, k=10, unknown="popular").to_pylist()
        pairs = {(row["user"], row["item"]) for row in lists}
        return sum((row["user"], row["item"]) in pairs for row in wanted.to_pylist())


@pytest.fixture(scope="module")
def launch():
    return Launch()


@pytest.fixture(scope="module")
def saved(launch, tmp_path_factory):
    """Models that were fitted before the launch, by name, as files."""
    folder = tmp_path_factory.mktemp("models")
    made = {
        "mf": SMALL,
        "lightgcn": {**SMALL, "encoder": "lightgcn", "popularity": 0.0},
        "blend": {**SMALL, "blend": "ease", "blend_weight": 2.0},
        "bpr": SAMPLED,
        "bpr-sgd": {
            **SAMPLED,
            "engine": "cpu-fast",
            "optimizer": "sgd",
            "weight_decay": 0,
            "learning_rate": 0.3,
        },
    }
    for name, parameters in made.items():
        Recommender(**parameters).fit(launch.old).save(folder / name)
    return folder


def bits(model):
    """Everything that a later update or list depends on."""
    users, items = (x.toarray() if hasattr(x, "toarray") else x for x in model.matrices())
    found = [torch.as_tensor(users), torch.as_tensor(items), torch.as_tensor(model.popularity_.copy())]
    start = model.model_.start
    sides = [] if start is None else [*start.sides().values()]
    found += [tensor.clone() for side in sides for tensor in side if tensor is not None]
    return found, None if start is None else start.steps, model.seen_.hash, dict(model.facts_)


def same(one, other):
    tensors = all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    return tensors and one[1:3] == other[1:3] and one[3]["updates"] == other[3]["updates"]


# --- the contract ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mf", "lightgcn", "blend", "bpr"])
def test_the_same_update_has_the_same_bits_also_through_a_file(name, launch, saved, tmp_path):
    first, second = (tp.load(saved / name).update(launch.new, epochs=2) for _ in range(2))
    assert same(bits(first), bits(second))
    more = launch.new.take(np.arange(len(launch.new)) % 3 == 0)
    first.save(tmp_path / "between")
    assert same(
        bits(first.update(more, epochs=1)), bits(tp.load(tmp_path / "between").update(more, epochs=1))
    )
    assert len(first.facts_["updates"]) == 2


def test_fitting_and_loading_are_updated_alike(launch, saved):
    fitted = Recommender(**SMALL).fit(launch.old)
    assert same(
        bits(fitted.update(launch.new, epochs=1)), bits(tp.load(saved / "mf").update(launch.new, epochs=1))
    )


@pytest.mark.parametrize("name", ["mf", "lightgcn", "blend", "bpr", "bpr-sgd"])
def test_newcomers_get_better_lists_than_the_most_popular_items(name, launch, saved):
    model = tp.load(saved / name)
    before = launch.hits(model, launch.late_users)  # these get the most popular items
    model.update(launch.new, epochs=5)
    assert launch.hits(model, launch.late_users) > 1.5 * before
    assert launch.hits(model, ~launch.late_users, launch.late_items) > 5  # none of them was in a list


def test_an_update_comes_close_to_a_new_fit(launch, saved):
    nothing, updated, again = (
        launch.hits(tp.load(saved / "mf")),
        launch.hits(tp.load(saved / "mf").update(launch.new)),
        launch.hits(Recommender(**SMALL).fit(launch.known)),
    )
    assert nothing < 0.9 * again
    assert updated > 0.9 * again


def test_epochs_0_leaves_known_vectors_as_they_are(launch, saved):
    before, after = tp.load(saved / "mf"), tp.load(saved / "mf").update(launch.new, epochs=0)
    for ids, side in (("user_ids", "users"), ("item_ids", "items")):
        rows = getattr(after.seen_, ids).find(getattr(before.seen_, ids))
        new, known = (getattr(model.model_.scorer, side) for model in (after, before))
        assert known.shape[1] == SMALL["dim"]
        assert torch.equal(new[rows], known)
    # lists of known items change by popularity and by what people have by now, and that is little
    known, people = before.seen_.item_ids.ids, before.seen_.user_ids.ids
    lists = [
        {(row["user"], row["item"]) for row in model.recommend(people, k=10, only_items=known).to_pylist()}
        for model in (before, after)
    ]
    assert len(lists[0] & lists[1]) > 0.8 * len(lists[0])
    assert launch.hits(after, ~launch.late_users, launch.late_items) > 20  # new items are there at once
    assert launch.hits(after, launch.late_users) > 20  # new users too; 3 with popular items
    assert after.facts_["updates"][0]["epochs"] == 0


def test_a_known_model_with_known_pairs_only_is_trained_on(launch, saved):
    model = tp.load(saved / "mf").update(launch.old, epochs=1)
    record = model.facts_["updates"][0]
    assert (record["new users"], record["new items"], record["new pairs"]) == (0, 0, 0)
    assert model.seen_ == launch.old


@pytest.mark.parametrize("encoder", ["popular", "itemknn", "ease"])
def test_closed_forms_equal_a_new_fit(encoder, launch):
    updated = Recommender(encoder=encoder).fit(launch.old).update(launch.new)
    again = Recommender(encoder=encoder).fit(launch.known)
    for one, other in zip(updated.matrices(), again.matrices(), strict=True):
        difference = abs(one - other)
        assert difference.max() == 0
    assert updated.seen_ == again.seen_
    assert (updated.popularity_ == again.popularity_).all()


def test_ease_of_a_blend_is_that_of_all_pairs(launch, saved):
    updated = tp.load(saved / "blend").update(launch.new, epochs=1)
    ease = Recommender(encoder="ease").fit(launch.known)
    scorer = updated.model_.scorer
    torch.testing.assert_close(scorer.weights, 2.0 * ease.model_.scorer.weights)
    assert abs(scorer.history - ease.model_.scorer.history).max() == 0
    alone = tp.load(saved / "mf").update(launch.new, epochs=1).model_.scorer
    for part in ("users", "items", "term"):  # the trained part is that of an update alone
        assert torch.equal(getattr(scorer, part), getattr(alone, part))


# --- what an update keeps and records ----------------------------------------------------------------------


def test_facts_and_text(launch, saved):
    model = tp.load(saved / "mf").update(launch.new, epochs=3)
    record = model.facts_["updates"][0]
    assert record["new users"] == model.seen_.n_users - launch.old.n_users
    assert record["new items"] == model.seen_.n_items - launch.old.n_items
    assert record["new pairs"] == len(launch.known) - len(launch.old)
    assert record["data"] == launch.new.hash
    assert model.facts_["data"] == launch.known.hash
    assert "updated once" in repr(model)
    assert "updated 2 times" in repr(model.update(launch.new, epochs=0))
    assert (model.popularity_ == launch.known.item_counts).all()


def test_every_update_draws_its_own_numbers(launch, saved):
    model = tp.load(saved / "bpr")
    seeds = [model.update(launch.new, epochs=1).result_.job.settings.seed for _ in range(2)]
    assert len({0, *seeds}) == 3


def test_scores_of_the_earlier_matrices_are_not_stated(launch):
    model = Recommender(encoder="popular").fit(tp.split_random(launch.old, 0.2, valid=0.2))
    assert model.facts_["metrics"]
    assert model.update(launch.new).facts_["metrics"] == {}
    assert model.seen_ != launch.known  # the test part is not known


def test_popularity_is_that_of_all_pairs(launch, saved):
    model = tp.load(saved / "mf").update(launch.new, epochs=1)
    expected = 0.4 * torch.tensor(launch.known.item_counts).double().log1p()
    torch.testing.assert_close(model.model_.scorer.term.double(), expected, rtol=1e-6, atol=1e-6)


def test_the_moments_of_newcomers_start_at_zero(launch, saved):
    model = tp.load(saved / "mf")
    steps = model.model_.start.steps
    model.update(launch.new, epochs=0)
    start, known = model.model_.start, launch.old.user_ids
    new = known.find(model.seen_.user_ids) < 0
    assert start.steps == steps
    assert (start.users.second[new] == 0).all()
    assert (start.users.second[~new] > 0).any(dim=1).all()
    lengths = start.users.vectors.norm(dim=1)
    assert lengths[new] == pytest.approx(float(lengths[~new].median()), rel=1e-5)


def test_a_file_without_training_state_is_updated_too(launch, saved, tmp_path):
    model = tp.load(saved / "mf")
    model.save(tmp_path / "small", updatable=False)
    assert (tmp_path / "small").stat().st_size < 0.5 * (saved / "mf").stat().st_size
    small = tp.load(tmp_path / "small")
    assert small.model_.start is None
    assert small.recommend(k=5).equals(model.recommend(k=5))
    steps = small.update(launch.new).model_.start.steps
    assert steps < model.update(launch.new).model_.start.steps  # Adam began anew
    assert launch.hits(small, launch.late_users) > launch.hits(tp.load(saved / "mf"), launch.late_users)


def test_lightgcn_without_training_state_says_what_to_do(launch, saved, tmp_path):
    tp.load(saved / "lightgcn").save(tmp_path / "small", updatable=False)
    with pytest.raises(InputError, match="Fit it again, with validation=0"):
        tp.load(tmp_path / "small").update(launch.new)


def test_settings_that_the_fit_chose_are_used(saved, launch):
    # after automatic settings, the spec has what the parameters do not
    model = tp.load(saved / "mf").set_params(dim=None, temperature=None, popularity=None, learning_rate=None)
    fitted = model.spec_
    job = model.update(launch.new, epochs=1).result_.job
    assert (job.encoder.dim, job.encoder.temperature, job.encoder.popularity) == (16, 0.2, 0.4)
    assert job.settings.learning_rate == 0.5 * fitted.settings.learning_rate
    assert job.settings.batch_size == fitted.batch_size
    assert job.start is None  # it is large


def test_one_prior_per_user_grows_with_the_users(launch):
    prior = tuple(np.linspace(0.01, 0.1, launch.old.n_users).tolist())
    model = Recommender(**{**SMALL, "loss": "dpl", "epochs": 1}, tau=prior).fit(launch.old)
    model.update(launch.new, epochs=1)
    places = launch.old.user_ids.find(model.seen_.user_ids)
    expected = [prior[place] if place >= 0 else np.mean(prior) for place in places]
    assert model.model_.tau == pytest.approx(expected)


def test_users_and_items_that_were_known_by_name_only_are_newcomers(launch):
    # the ids of the whole world, as a split has them
    world = launch.world
    codes = [world.user_ids.codes(launch.old.user_ids)[launch.old.users],
             world.item_ids.codes(launch.old.item_ids)[launch.old.items]]  # fmt: skip
    model = Recommender(**SMALL).fit(Interactions(*codes, world.user_ids, world.item_ids))
    model.update(launch.new, epochs=0)
    assert model.facts_["updates"][0]["new users"] == launch.known.n_users - launch.old.n_users
    assert launch.hits(model, launch.late_users) > 20
    assert launch.hits(model, ~launch.late_users, launch.late_items) > 20


def test_a_newcomer_with_newcomers_only(launch, saved):
    model = tp.load(saved / "mf")
    strangers = {"user": ["zz1", "zz1", "zz2"], "item": ["new tea", "new milk", "new tea"]}
    model.update(strangers, epochs=20)  # they start anywhere, and only training tells where they belong
    assert "new milk" in model.recommend(["zz2"], k=3).column("item").to_pylist()


# --- evaluating --------------------------------------------------------------------------------------------


def test_what_was_learnt_is_refused(launch):
    split = tp.split_random(launch.known, 0.3, seed=1)
    model = Recommender(**SMALL).fit(split)
    before = model.evaluate(split).mean("ndcg@10")
    half = np.arange(len(split.test)) % 2 == 0
    model.update(split.test.take(half), epochs=2)
    with pytest.raises(InputError, match="were in the data; use fit"):
        model.evaluate(split)
    rest = Split(model.seen_, None, split.test.take(~half), "given")
    assert model.evaluate(rest).mean("ndcg@10") > 0.5 * before


# --- errors leave the model as it was ----------------------------------------------------------------------

BAD = {
    "other ids": (
        lambda data: {"user": [1, 2], "item": [3, 4]},
        {},
        "known user ids are of type large_string",
    ),
    "no pairs": (lambda data: data.take(np.zeros(len(data), bool)), {}, "no new interactions"),
    "weights": (lambda data: {"user": ["a", "b"], "item": ["x", "y"], "weight": [1, -2]}, {}, "weight"),
    "epochs": (lambda data: data, {"epochs": -1}, "epochs"),
    "a number": (lambda data: 3, {}, "int"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_leaves_the_model_unchanged(name, launch, saved):
    make, options, message = BAD[name]
    model = tp.load(saved / "mf").update(launch.new.take(np.arange(9)), epochs=0)
    before, lists = bits(model), model.recommend(k=3)
    with pytest.raises(InputError, match=message):
        model.update(make(launch.new), **options)
    assert same(bits(model), before)
    assert model.recommend(k=3).equals(lists)


def test_a_failure_in_training_leaves_the_model_unchanged(launch, saved, monkeypatch):
    model = tp.load(saved / "mf").update(launch.new.take(np.arange(9)), epochs=0)
    before = bits(model)
    made = []

    def solve(*arguments):
        made.append(arguments)
        raise InputError("no room")

    monkeypatch.setattr("truepair.recommender.updating.update.scorer_of", solve)  # after training
    with pytest.raises(InputError, match="no room"):
        model.update(launch.new, epochs=1)
    assert made
    assert same(bits(model), before)


def test_refusals(launch, saved):
    with pytest.raises(InputError, match="not fitted"):
        Recommender().update(launch.new)
    guests = tp.load(saved / "mf").fold_in(launch.old.take(np.arange(5)))
    with pytest.raises(InputError, match="update the model itself"):
        guests.update(launch.new)
    weighted = Recommender(**{**SMALL, "epochs": 1}, loss=WeightedInfoNCE()).fit(launch.old)
    with pytest.raises(InputError, match="loss = WeightedInfoNCE cannot be updated"):
        weighted.update(launch.new)
    with pytest.raises(InputError, match="has no effect"):
        Recommender(encoder="ease").fit(launch.old).update(launch.new, epochs=3)


@pytest.mark.parametrize("options", [{}, {"scoring": "dot", "temperature": 1.0}], ids=["cosine", "dot"])
def test_new_items_do_not_crowd_lists_before_they_are_refined(options):
    """A new item has few users; fitted against users alone, they had 39% of the places, after a fit 6%."""
    world = tp.simulate_world(300, 120, density=0.15, seed=4).observed
    chance = np.random.default_rng(1)
    late = chance.random(world.n_items) < 0.2
    is_late = late[world.items]
    kept = ~is_late | (chance.random(len(world)) < 0.4)
    old, new, known = only(world, ~is_late), only(world, is_late & kept), only(world, kept)
    parameters = {**SMALL, "popularity": 0.0, **options}
    names = set(world.item_ids.outside(np.flatnonzero(late)).to_pylist())
    shares = []
    for model in (
        Recommender(**parameters).fit(old).update(new, epochs=0),
        Recommender(**parameters).fit(known),
    ):
        lists = model.recommend(k=10).column("item").to_pylist()
        shares.append(np.mean([item in names for item in lists]))
    assert shares[0] < shares[1] + 0.08
