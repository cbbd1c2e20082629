"""What a parameter may be: checks, the middle, room at the edges, and the way to JSON and back."""

import json

import pytest

from truepair.errors import InputError
from truepair.losses import LOSSES
from truepair.models.closed_forms import CLOSED, EASE
from truepair.models.encoders import ENCODERS
from truepair.recommender.estimator import Recommender
from truepair.sampling import SAMPLERS
from truepair.search.domains import (
    Choice,
    Powers,
    Range,
    When,
    domain_of,
    extend_space,
    plain_space,
    read_space,
    values_inside,
)
from truepair.search.running import check_space
from truepair.search.spaces import check_values, default_space, default_values
from truepair.spec.defaults import with_defaults
from worlds import two_tastes


def test_the_middle_is_in_the_scale_searched():
    assert Range(0, 4).middle() == 2
    assert Range(1e-4, 1e-2, log=True).middle() == pytest.approx(1e-3)
    assert (Powers(32, 128).middle(), Powers(1, 8).middle()) == (64, 2)
    assert Choice(["dot", "cosine"]).middle() == "dot"


@pytest.mark.parametrize(
    ("domain", "value", "low", "high"),
    [
        (Range(0, 4), 2, 0, 4),
        (Range(0, 4), 0.3, 0, 4),
        (Range(0, 4), 0.1, 0, 4),  # not below 0 unless `least` says so
        (Range(1, 5), 1.1, 0, 5),
        (Range(0, 4, least=-9), 0.1, -2, 4),
        (Range(-1, 3), -0.9, -3, 3),
        (Range(0, 4), 3.9, 0, 6),
        (Range(0, 4, least=0), 0.1, 0, 4),
        (Range(0, 4, most=4.5), 4, 0, 4.5),
        (Range(1e-4, 1e-2, log=True), 1.1e-4, 1e-5, 1e-2),
        (Range(1e-4, 1e-2, log=True), 9e-3, 1e-4, 1e-1),
        (Powers(4, 32), 8, 4, 32),
        (Powers(4, 32), 4, 2, 32),
        (Powers(4, 32), 32, 4, 64),
        (Powers(1, 4), 1, 1, 4),
        (Powers(4, 32, least=4, most=32), 32, 4, 32),
    ],
)
def test_room_at_the_edge(domain, value, low, high):
    wider = domain.extended(value)
    assert (wider.low, wider.high) == pytest.approx((low, high))
    if (low, high) == (domain.low, domain.high):
        assert wider == domain


def test_a_space_is_extended_where_the_best_is_at_an_edge_and_asked():
    space = {"a": Range(0, 1), "b": Powers(2, 8), "c": Choice([1, 2]), "d": When("c", 2, Range(0, 1))}
    wider, names = extend_space(space, {"a": 0.5, "b": 8, "c": 1})
    assert names == ("b",)
    assert wider == {**space, "b": Powers(2, 16)}
    wider, names = extend_space(space, {"a": 0.5, "b": 4, "c": 2, "d": 1.0})
    assert names == ("d",)
    assert wider["d"] == When("c", 2, Range(0, 1.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Range(1, 1), "high = 1 is out of range; it must be a finite number > 1"),
        (lambda: Range(0, 1, log=True), "low = 0 is out of range"),
        (lambda: Range(0, 1, least=0.5), "least = 0.5 is out of range"),
        (lambda: Range(0, 1, most=0.5), "most = 0.5 is out of range"),
        (lambda: Powers(3, 8), "low = 3 is no power of two; the nearest is 4"),
        (lambda: Powers(8, 4), "high = 4 is out of range"),
        (lambda: Powers(0.5, 4), "low = 0.5 is out of range"),
        (lambda: Choice([]), "one or more different values"),
        (lambda: Choice([1, 1]), "one or more different values"),
        (lambda: Choice([[1]]), "give texts, numbers"),
        (lambda: When("a", 1, 3), "domain is a int"),
        (lambda: read_space({"a": {"low": 1}}), "a = {'low': 1} is no domain"),
        (lambda: read_space({"a": {"lo": 1}}), "a has 'lo'; a domain has low, high"),
        (lambda: read_space({"a": 3}), "a = 3 is no domain; give {low"),
        (lambda: read_space({"a": {"values": [1], "when": 3}}), "must name one parameter"),
        (lambda: read_space({"a": {"values": 3}}), "values = 3 is no list; write [3]"),
        (lambda: read_space({"a": {"values": {"b": 1}}}), "is no list"),
        (lambda: check_space({}, {}), "the space is empty"),
        (lambda: check_space({"a": 3}, {}), "give a Range, Powers or Choice"),
        (lambda: check_space({"a": Range(0, 1)}, {"a": 1}), "a is fixed to 1 and also in the space"),
        (lambda: check_space({"a": When("b", 1, Range(0, 1))}, {}), "neither fixed nor named before"),
    ],
)
def test_what_cannot_be(make, message):
    with pytest.raises(InputError) as error:
        make()
    assert message in str(error.value)


def test_to_json_and_back():
    space = {
        "a": Range(0.5, 1, most=2.0),
        "b": Powers(2, 8, least=2),
        "c": Choice([None, True, "x", 0.5]),
        "d": When("c", "x", Range(1e-3, 1, log=True)),
    }
    assert read_space(json.loads(json.dumps(plain_space(space)))) == space
    assert read_space({"c": ["none", 3]}) == {"c": Choice([None, 3])}
    assert read_space({"c": {"values": "dot"}}) == {"c": Choice(["dot"])}  # a text is one value
    assert read_space({"c": {"values": "none"}}) == {"c": Choice([None])}


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_corner_of_every_default_space_can_be_trained(loss, encoder):
    """So that no trial fails for its parameters alone, however often the space is extended."""
    for sampler in SAMPLERS:
        fixed = {"loss": loss, "encoder": encoder, "sampler": sampler}
        space = default_space(loss, encoder, sampler)
        check_space(space, fixed)
        for _ in range(3):
            for corner in ("low", "high"):
                domains = {name: getattr(entry, "domain", entry) for name, entry in space.items()}
                values = {name: getattr(d, corner, None) or d.middle() for name, d in domains.items()}
                assert Recommender.of({**fixed, **values}).spec.is_trained
                space, _ = extend_space(space, values)


@pytest.mark.parametrize("sampler", ["uniform", "full"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_with_a_temperature_of_its_own_has_no_other(loss, sampler):
    space = default_space(loss, sampler=sampler)
    contrastive = loss in ("infonce", "sl", "bsl", "psl", "dcl", "hcl")
    assert ("loss.temperature" in space) == contrastive
    fixed = contrastive or LOSSES[loss].needs_cosines
    if sampler == "full" and loss == "infonce":  # one for cosines, the other for dots
        assert space["encoder.temperature"].value == "cosine"
        assert space["loss.temperature"].value == "dot"
        fixed = False
    assert (space["encoder.temperature"] == Choice([1.0])) == fixed
    assert space["encoder.scoring"] == Choice(["cosine"]) or not LOSSES[loss].needs_cosines
    floor = When("encoder.scoring", "dot", Range(-10.0, -1.0, least=-50.0, most=0.0))
    assert space.get("loss.min_score") == (floor if loss in ("dcl", "hcl") else None)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_default_is_what_recommender_does_without_a_search(loss, sampler):
    fixed, train = {"loss": loss, "encoder": "mf", "sampler": sampler, "device": "cpu"}, two_tastes()
    optimizer = with_defaults(fixed)["optimizer"]
    space = default_space(loss, sampler=sampler, optimizer=optimizer)
    known = default_values(space, fixed, train)
    inside = values_inside(space, known, fixed)
    assert {"learning_rate", "weight_decay" if optimizer == "adam" else "l2_users"} <= set(inside)
    if loss in ("infonce", "bpr", "dpl"):
        assert {"encoder.dim", "encoder.scoring"} <= set(inside)
    assert Recommender.of({**fixed, **inside}).job(train) == Recommender.of(fixed).job(train)


def test_the_default_space_has_what_the_guide_recommends():
    space = default_space()
    assert 0.0 in space["weight_decay"].values
    assert 0.0 in default_space("bpr", sampler="uniform")["weight_decay"].values
    assert space["encoder.popularity"] == Range(0.0, 1.0)
    assert space["encoder.scoring"] == Choice(["cosine", "dot"])
    for dim, temperature, popularity in ((512, 0.075, 0.65), (512, 0.11, 0.2)):  # of Gowalla and Yelp2018
        assert space["encoder.dim"].contains(dim)
        assert domain_of(space["encoder.temperature"]).contains(temperature)
        assert space["encoder.popularity"].contains(popularity)


def test_closed_forms_have_a_default_and_refused_parameters_have_none():
    fixed = {"encoder": "ease"}
    assert default_values(default_space(**fixed), fixed, two_tastes()) == {"encoder.l2": EASE().l2}
    assert default_values({"tau": Range(0, 0.5)}, {"loss": "dpl"}, two_tastes()) == {}
    assert default_values({"seed": Choice([1])}, {"epochs": -1}, two_tastes()) is None


def test_the_softmax_losses_are_searched_with_all_their_parameters():
    own = {
        name: {key for key in default_space(name, sampler="uniform") if key.startswith("loss.")}
        for name in ("sl", "bsl", "psl")
    }
    assert own["sl"] == {"loss.temperature"}
    assert own["bsl"] == {"loss.temperature", "loss.positive_temperature"}
    assert own["psl"] == {"loss.temperature", "loss.surrogate"}
    assert ["n_extra" in default_space(name, sampler="uniform") for name in own] == [False, True, False]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_default_spaces_pass_the_check_of_their_values(encoder, sampler):
    for loss in LOSSES:
        check_values(
            default_space(loss, encoder, sampler), {"loss": loss, "encoder": encoder, "sampler": sampler}
        )


@pytest.mark.parametrize(
    ("space", "fixed", "message"),
    [
        (
            {"tau": Range(0.5, 1.5)},
            {"loss": "dpl"},
            "tau is searched from 0.5 to 1.5, and its middle, 1.0, is not allowed",
        ),
        (
            {"loss.tau": Range(0.5, 1.2)},
            {"loss": "dpl"},
            "loss.tau is searched from 0.5 to 1.2, and 1.2 is not allowed",
        ),
        ({"learning_rate": Range(0, 1)}, {}, "learning_rate is searched from 0 to 1, and 0.0 is not allowed"),
        (
            {"epochs": Powers(1, 8), "tau": Range(0.5, 1.6), "learning_rate": Range(-3, 1)},
            {"loss": "dpl"},
            "tau is searched from 0.5 to 1.6, and its middle, 1.05, is not allowed: tau = 1.05 is out",
        ),
        (
            {"encoder.scoring": Choice(["dot", "cos"])},
            {},
            "encoder.scoring is searched among 'dot', 'cos', and 'cos' is not allowed: scoring = 'cos'",
        ),
        ({"encoder.scoring": Choice(["cos"])}, {}, "and its first value, 'cos', is not allowed"),
        (
            {
                "encoder.scoring": Choice(["dot", "cosine"]),
                "encoder.temperature": When("encoder.scoring", "cosine", Range(-1, 1)),
            },
            {},
            "encoder.temperature is searched from -1 to 1, and -1.0 is not allowed",
        ),
        ({"seed": Choice([1, 2])}, {"epochs": -1}, "epochs = -1 is out of range"),
        ({"loss.bet": Range(0, 1)}, {}, "loss.bet is searched from 0 to 1, and its middle, 0.5, is not"),
    ],
)
def test_an_error_names_the_range_it_is_from(space, fixed, message):
    with pytest.raises(InputError) as error:
        check_values(space, fixed)
    assert message in str(error.value)


def test_an_end_that_is_good_beside_other_values_is_not_refused():
    pool = {"n_unlabelled": Powers(1, 32), "sampler.pool": Powers(16, 64)}
    check_values(pool, {"sampler": "dns"})  # 32 of a pool of 32 is bad, 32 of 64 is not
    never = When("encoder.scoring", "cosine", Range(-1, 1))
    check_values({"encoder.temperature": never, "seed": Choice([1, 2])}, {"encoder.scoring": "dot"})


def test_models_without_training_have_their_own():
    with pytest.raises(InputError, match="'popular' has no parameters"):
        default_space(encoder="popular")
    for encoder in set(CLOSED) - {"popular"}:
        space = default_space(encoder=encoder)
        middle = {name: entry.middle() for name, entry in space.items()}
        assert Recommender.of({"encoder": encoder, **middle}).spec.closed_form is not None
