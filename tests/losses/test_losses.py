"""Every loss against a slow oracle: the printed formulas, in 60-digit arithmetic."""

import dataclasses
import itertools
import math

import mpmath
import pytest
import torch
from mpmath import mpf

from loss_values import EXAMPLES
from truepair.errors import InputError
from truepair.losses import (
    BCE,
    BPR,
    BSL,
    CCL,
    DCL,
    DPL,
    HCL,
    LOSSES,
    PSL,
    SL,
    DPLHalf,
    DPLHard,
    InfoNCE,
    Pointwise,
    Row,
)
from truepair.losses.base import Parameter, parameters_of
from truepair.training.full.losses import has_row_form

mpmath.mp.dps = 60


# --- the oracle: formulas as printed, no logarithm tricks ----------------------------------------------


def sigma(x):
    return 1 / (1 + mpmath.exp(-x))


def mean(values):
    return sum(values) / len(values)


def oracle_bpr(loss, tau, s, extra, unl):
    return mean([-mpmath.log(sigma(s - x)) for x in unl])


def oracle_bce(loss, tau, s, extra, unl):
    return -mpmath.log(sigma(s)) + mpf(loss.weight) * mean([-mpmath.log(sigma(-x)) for x in unl])


def oracle_ccl(loss, tau, s, extra, unl):
    return max(0, 1 - s) + mpf(loss.weight) * mean([max(0, x - mpf(loss.margin)) for x in unl])


def oracle_infonce(loss, tau, s, extra, unl):
    t = mpf(loss.temperature)
    return -mpmath.log(mpmath.exp(s / t) / (mpmath.exp(s / t) + sum(mpmath.exp(x / t) for x in unl)))


def oracle_sl(loss, tau, s, extra, unl):
    t = mpf(loss.temperature)
    return -mpmath.log(mpmath.exp(s / t) / mean([mpmath.exp(x / t) for x in unl]))


def oracle_bsl(loss, tau, s, extra, unl):
    t, own = mpf(loss.temperature), mpf(loss.positive_temperature)
    positive = own * mpmath.log(mean([mpmath.exp(x / own) for x in extra or [s]]))
    return (t * mpmath.log(mean([mpmath.exp(x / t) for x in unl])) - positive) / t


SURROGATES = {
    "tanh": lambda d: 2 * sigma(2 * d),  # 1 + tanh(d) has no digit left at d = -5000
    "relu": lambda d: max(1 + d, mpf(0.01)),
    "atan": lambda d: max(1 + mpmath.atan(d), mpf(0.01)),
}


def oracle_psl(loss, tau, s, extra, unl):
    return mpmath.log(
        mean([SURROGATES[loss.surrogate]((x - s) / 2) ** (1 / mpf(loss.temperature)) for x in unl])
    )


def contrastive(loss, tau, s, extra, unl, weights):
    t, n = mpf(loss.temperature), len(unl)
    total = sum(w * mpmath.exp(x / t) for w, x in zip(weights, unl, strict=True))
    wrong = n * tau * mean([mpmath.exp(x / t) for x in extra]) if extra else 0
    g = max((total - wrong) / (1 - tau), n * mpmath.exp(mpf(loss.min_score) / t))
    return -s / t + mpmath.log(mpmath.exp(s / t) + g)


def oracle_dcl(loss, tau, s, extra, unl):
    return contrastive(loss, tau, s, extra, unl, [1] * len(unl))


def oracle_hcl(loss, tau, s, extra, unl):
    raw = [mpmath.exp(mpf(loss.beta) * x / mpf(loss.temperature)) for x in unl]
    return contrastive(loss, tau, s, extra, unl, [w / mean(raw) for w in raw])


def pairwise(loss, tau, s, extra, unl, weights):
    s = s - mpf(loss.margin)
    pu = sum(w * sigma(s - x) for w, x in zip(weights, unl, strict=True))
    pp = mean([sigma(s - x) for x in extra]) if extra else 0
    bound = mpf(loss.floor) * (pu if loss.clamp == "relative" else 1)
    return -mpmath.log(max((pu - tau * pp) / (1 - tau), bound))


def oracle_dpl(loss, tau, s, extra, unl):
    return pairwise(loss, tau, s, extra, unl, [mpf(1) / len(unl)] * len(unl))


def oracle_dpl_half(loss, tau, s, extra, unl):
    pu = mean([sigma(s - x) for x in unl])
    bound = mpf(loss.floor) * (pu if loss.clamp == "relative" else 1)
    return -mpmath.log(max((pu - tau / 2) / (1 - tau), bound))


def oracle_dpl_hard(loss, tau, s, extra, unl, fixed_weights=None):
    raw = [mpmath.exp(mpf(loss.beta) * x) for x in (fixed_weights or unl)]
    return pairwise(loss, tau, s, extra, unl, [w / sum(raw) for w in raw])


ORACLES = {
    "bpr": oracle_bpr,
    "bce": oracle_bce,
    "ccl": oracle_ccl,
    "infonce": oracle_infonce,
    "sl": oracle_sl,
    "bsl": oracle_bsl,
    "psl": oracle_psl,
    "dcl": oracle_dcl,
    "hcl": oracle_hcl,
    "dpl": oracle_dpl,
    "dpl-hard": oracle_dpl_hard,
    "dpl-half": oracle_dpl_half,
}

CASES = [(name, loss) for name in LOSSES for loss in EXAMPLES[name]]


def case_id(case):
    return repr(case[1]) if isinstance(case, tuple) else None


def oracle_value(name, loss, row, weights_from=None):
    tau = mpf(getattr(loss, "tau", 0))
    if name == "dpl-hard":
        return oracle_dpl_hard(loss, tau, *row, fixed_weights=weights_from)
    return ORACLES[name](loss, tau, *row)


def oracle_row(name, loss, pos, extra, unl):
    """Value and gradient (with respect to pos, extra, unlabelled) of one row."""
    flat = [mpf(x) for x in (pos, *extra, *unl)]
    m = len(extra)

    def value(x):
        return oracle_value(name, loss, (x[0], x[1 : 1 + m], x[1 + m :]), weights_from=flat[1 + m :])

    h, gradient = mpf(10) ** -20, []
    for k in range(len(flat)):
        up, down = list(flat), list(flat)
        up[k] += h
        down[k] -= h
        gradient.append(float((value(up) - value(down)) / (2 * h)))
    return float(value(flat)), gradient


def value_and_gradient(loss, pos, extra, unl):
    leaves = [x.clone().requires_grad_() for x in (pos, extra, unl)]
    rows = loss(*leaves)
    grads = torch.autograd.grad(rows.sum(), leaves, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)]
    return rows.detach(), torch.cat([grads[0][:, None], grads[1], grads[2]], dim=1)


def check_against_oracle(name, loss, pos, extra, unl, rtol, atol):
    values, gradients = value_and_gradient(loss, pos, extra, unl)
    for b in range(len(pos)):
        value, gradient = oracle_row(name, loss, pos[b].item(), extra[b].tolist(), unl[b].tolist())
        assert values[b].item() == pytest.approx(value, rel=rtol, abs=atol)
        assert gradients[b].tolist() == pytest.approx(gradient, rel=rtol, abs=atol)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_value_and_gradient_equal_the_oracle_in_float64(case):
    name, loss = case
    shapes = [(1, 0, 1), (3, 1, 1), (2, 0, 5), (5, 3, 2), (2, 4, 7)]
    for (b, m, n), scale in itertools.product(shapes, [0.3, 3.0]):
        g = torch.Generator().manual_seed(b * 100 + m * 10 + n)
        pos, extra, unl = (
            scale * torch.randn(shape, generator=g, dtype=torch.float64) for shape in [(b,), (b, m), (b, n)]
        )
        check_against_oracle(name, loss, pos, extra, unl, rtol=1e-9, atol=1e-11)


EXTREMES = torch.tensor([-1e4, -90.0, 0.0, 90.0, 1e4])


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_scores_of_plus_minus_ten_thousand_are_safe_in_float32(case):
    name, loss = case
    grid = torch.tensor(list(itertools.product(range(5), repeat=3)))
    pos, extra, unl = EXTREMES[grid[:, 0]], EXTREMES[grid[:, 1:2]], EXTREMES[grid[:, 2:]]
    extra, unl = torch.cat([extra, extra.flip(0)], 1), torch.cat([unl, unl.roll(7, 0)], 1)
    values, gradients = value_and_gradient(loss, pos, extra, unl)
    assert values.isfinite().all()
    assert gradients.isfinite().all()
    # the oracle for each pair of extremes in each two places, twice
    chosen = ((grid * torch.tensor([1, 2, 1])).sum(dim=1) % 5 < 2).nonzero().flatten().tolist()
    away = [b for b in chosen if not on_a_kink(name, loss, pos[b], extra[b], unl[b])]
    assert len(away) > len(chosen) / 2
    # float32 resolves 2e4 to 2e-3, and that is the exponent's error
    check_against_oracle(name, loss, pos[away], extra[away], unl[away], rtol=4e-3, atol=4e-3)


def on_a_kink(name, loss, pos, extra, unl):
    """Equal extremes can put a row exactly on its floor, where the gradient is one of two: leave it out."""
    rows = [
        float(oracle_value(name, loss, shifted(pos, extra, unl, d), unl.tolist())) for d in (-1e-6, 0, 1e-6)
    ]
    slopes = (rows[1] - rows[0]) / 1e-6, (rows[2] - rows[1]) / 1e-6
    return abs(slopes[0] - slopes[1]) > 1e-3


def shifted(pos, extra, unl, delta):
    return mpf(pos.item()) + mpf(delta), [mpf(x) for x in extra.tolist()], [mpf(x) for x in unl.tolist()]


# --- the identities that tie the losses together -------------------------------------------------------


def scores(b=64, m=4, n=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=g, dtype=torch.float64) for s in [(b,), (b, m), (b, n)]]


def assert_same(a, b, inputs):
    for left, right in zip(value_and_gradient(a, *inputs), value_and_gradient(b, *inputs), strict=True):
        torch.testing.assert_close(left, right)


def test_bpr_is_dpl_without_prior_and_one_unlabelled_item_where_the_floor_does_not_bind():
    pos, extra, unl = scores(n=1)
    for m in (0, 4):
        assert_same(BPR(), DPL(tau=0.0, floor=1e-9), (pos, extra[:, :m], unl))


def test_hcl_with_beta_zero_is_dcl():
    assert_same(HCL(tau=0.1, beta=0.0, temperature=0.6), DCL(tau=0.1, temperature=0.6), scores())


def test_dcl_with_prior_zero_is_infonce_where_the_floor_does_not_bind():
    assert_same(DCL(tau=0.0, temperature=0.6, min_score=-50), InfoNCE(temperature=0.6), scores())


def test_dpl_hard_with_beta_zero_is_dpl():
    assert_same(DPLHard(tau=0.1, beta=0.0), DPL(tau=0.1), scores())


def test_dpl_half_is_dpl_whose_extra_positives_are_the_anchor_itself():
    """Because σ(0) = ½."""
    pos, _, unl = scores()
    itself = pos[:, None].expand(-1, 4)
    for clamp in ("hard", "relative"):
        half, whole = DPLHalf(tau=0.2, clamp=clamp), DPL(tau=0.2, clamp=clamp)
        torch.testing.assert_close(half(pos, itself, unl), whole(pos, itself, unl))


def test_two_positives_in_either_order_compare_as_one_half():
    """Why ½: σ(a) + σ(−a) = 1, so over all ordered pairs of a user's positives the mean is ½."""
    s = scores(b=1, n=9)[2][0]
    torch.testing.assert_close(torch.sigmoid(s[:, None] - s[None, :]).mean(), torch.tensor(0.5).double())


def test_dpl_half_does_not_look_at_extra_positives():
    pos, extra, unl = scores()
    none = torch.empty(len(pos), 0, dtype=torch.float64)
    assert torch.equal(DPLHalf(tau=0.2)(pos, extra, unl), DPLHalf(tau=0.2)(pos, none, unl))
    assert (DPLHalf.uses_extra, DPLHalf.uses_prior) == (False, True)


def test_no_extra_positives_drop_the_second_term():
    pos, _, unl = scores()
    none = torch.empty(len(pos), 0, dtype=torch.float64)
    p = torch.sigmoid(pos[:, None] - unl).mean(1) / (1 - 0.2)
    torch.testing.assert_close(DPL(tau=0.2, floor=1e-9)(pos, none, unl), -p.log())


@pytest.mark.parametrize("name", LOSSES)
def test_none_is_no_extra_positives(name):
    (loss, *_), (pos, extra, unl) = EXAMPLES[name], scores()
    value = loss(pos, extra=None, unlabelled=unl)
    assert torch.equal(value, loss(pos, pos.new_empty(len(pos), 0), unl))
    assert loss.uses_extra or torch.equal(value, loss(pos, extra, unl))
    assert torch.equal(loss.rows(pos, None, unl).loss, value)


# --- the softmax losses --------------------------------------------------------------------------------

SOFTMAX = [SL(0.3), BSL(0.3, 0.6), *(PSL(0.6, kind) for kind in SURROGATES)]


def cosines(**shape):
    return [torch.tanh(x) for x in scores(**shape)]


@pytest.mark.parametrize(
    ("loss", "formula"),
    [
        (SL(0.3), lambda s, e, u: (u / 0.3).exp().mean(1).log() - s / 0.3),
        (
            BSL(0.3, 0.6),
            lambda s, e, u: (0.3 * (u / 0.3).exp().mean(1).log() - 0.6 * (e / 0.6).exp().mean(1).log()) / 0.3,
        ),
        (PSL(0.6), lambda s, e, u: (1 + torch.tanh((u - s[:, None]) / 2)).pow(1 / 0.6).mean(1).log()),
        (PSL(0.6, "relu"), lambda s, e, u: torch.relu(1 + (u - s[:, None]) / 2).pow(1 / 0.6).mean(1).log()),
        (PSL(0.6, "atan"), lambda s, e, u: (1 + torch.atan((u - s[:, None]) / 2)).pow(1 / 0.6).mean(1).log()),
    ],
    ids=lambda value: repr(value) if not callable(value) or hasattr(value, "full") else "",
)
def test_softmax_losses_are_the_published_formulas_where_scores_are_cosines(loss, formula):
    inputs = cosines()
    torch.testing.assert_close(loss(*inputs), formula(*inputs))


@pytest.mark.parametrize("loss", SOFTMAX, ids=repr)
@pytest.mark.parametrize("m", [0, 3])
def test_gradients_of_softmax_losses_are_right(loss, m):
    inputs = [x.requires_grad_() for x in cosines(b=3, m=m)]
    assert torch.autograd.gradcheck(loss, inputs)


def test_infonce_is_the_softplus_of_sl_with_a_sum():
    pos, extra, unl = scores()
    sl = SL(temperature=0.6)(pos, extra, unl)
    torch.testing.assert_close(
        InfoNCE(temperature=0.6)(pos, extra, unl), torch.nn.functional.softplus(sl + math.log(unl.shape[1]))
    )


@pytest.mark.parametrize("loss", SOFTMAX, ids=repr)
def test_the_value_does_not_depend_on_how_often_an_item_is_drawn(loss):
    pos, extra, unl = cosines()
    torch.testing.assert_close(loss(pos, extra, unl), loss(pos, extra, torch.cat([unl, unl, unl], 1)))


def test_bsl_on_the_anchor_alone_is_sl():
    pos, _, unl = scores()
    for extra in (pos[:, None][:, :0], pos[:, None].expand(-1, 3)):
        bsl = BSL(temperature=0.6, positive_temperature=1.7)
        torch.testing.assert_close(bsl(pos, extra, unl), SL(temperature=0.6)(pos, extra, unl))
    assert_same(BSL(temperature=0.6, positive_temperature=1.7), SL(temperature=0.6), (pos, extra[:, :0], unl))


def test_bsl_takes_the_mean_or_the_highest_of_the_positives_in_the_limit():
    pos, extra, unl = scores()
    sl = SL(temperature=0.6)
    for temperature, limit in [(1e8, extra.mean(1)), (1e-8, extra.amax(1))]:
        bsl = BSL(temperature=0.6, positive_temperature=temperature)
        torch.testing.assert_close(bsl(pos, extra, unl), sl(limit, extra, unl), rtol=1e-6, atol=1e-6)


def test_bsl_gives_a_low_positive_less_weight():
    """So that a wrong one does little harm: the reason of the sign."""
    gradient = value_and_gradient(BSL(), torch.zeros(1), torch.tensor([[-2.0, 0.0, 2.0]]), torch.zeros(1, 2))[
        1
    ][0]
    assert gradient[0] == 0  # the anchor is one of the positives where it is drawn
    assert gradient[3] < gradient[2] < gradient[1] < 0
    assert gradient[1:4].sum().item() == pytest.approx(-1)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_psl_is_below_sl_with_twice_the_temperature_where_scores_are_cosines(surrogate):
    inputs = cosines()
    assert (PSL(0.4, surrogate)(*inputs) <= SL(0.8)(*inputs)).all()


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_psl_is_sl_with_twice_the_temperature_where_scores_are_close(surrogate):
    close = [1e-4 * x for x in scores()]
    sl, psl = (value_and_gradient(loss, *close) for loss in (SL(0.8), PSL(0.4, surrogate)))
    torch.testing.assert_close(psl[0], sl[0], rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(psl[1], sl[1], rtol=1e-3, atol=1e-4)


def test_psl_at_temperature_one_is_the_probability_that_dpl_leaves():
    """Without a prior, DPL is −log P, and PSL with tanh is log 2(1−P)."""
    inputs = scores()
    left = 1 - torch.exp(-DPL(tau=0.0, floor=1e-12)(*inputs))
    torch.testing.assert_close(PSL()(*inputs), torch.log(2 * left))


@pytest.mark.parametrize("surrogate", ["relu", "atan"])
@pytest.mark.parametrize("temperature", [0.05, 1.0, 3.0])
def test_psl_where_every_surrogate_would_be_zero_is_clamped_without_gradient(surrogate, temperature):
    loss = PSL(temperature, surrogate)
    inputs = torch.tensor([9.0, 0.0]), torch.empty(2, 0), torch.tensor([[0.0, -1e4], [-1e4, 1.0]])
    values, gradients = value_and_gradient(loss, *inputs)
    assert loss.rows(*inputs).clamped.tolist() == [True, False]
    assert values[0].item() == pytest.approx(math.log(0.01) / temperature)
    assert gradients[0].tolist() == [0, 0, 0]
    assert gradients[1].isfinite().all()
    assert gradients[1, 0] < 0


@pytest.mark.parametrize("surrogate", ["relu", "atan"])
def test_the_gradient_of_psl_is_bounded(surrogate):
    unl = torch.linspace(-5, 5, 10_001, dtype=torch.float64)[:, None]
    pos = torch.zeros(len(unl), dtype=torch.float64)
    gradient = value_and_gradient(PSL(0.5, surrogate), pos, unl[:, :0], unl)[1]
    assert gradient.abs().max() <= 50 / 0.5


# --- each score by itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*EXAMPLES["bce"], *EXAMPLES["ccl"]], ids=repr)
def test_pointwise_losses_give_the_derivatives_of_their_parts(loss):
    s = torch.linspace(-9.03, 9.07, 401, dtype=torch.float64, requires_grad=True)
    for part in (loss.positive, loss.unlabelled):
        value, slope = part(s)
        (gradient,) = torch.autograd.grad(value.sum(), s)
        torch.testing.assert_close(slope.detach(), gradient)


def test_bce_is_the_binary_cross_entropy_of_pytorch():
    pos, extra, unl = scores()
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    positive = entropy(pos, torch.ones_like(pos), reduction="none")
    sampled = entropy(unl, torch.zeros_like(unl), reduction="none")
    torch.testing.assert_close(BCE()(pos, extra, unl), positive + sampled.mean(dim=1))
    torch.testing.assert_close(BCE(weight=5.0)(pos, extra, unl), positive + sampled.sum(dim=1))  # N = 5


def test_ccl_is_the_published_formula_where_scores_are_cosines():
    pos, extra, unl = cosines()
    expected = (1 - pos) + 3.0 * torch.relu(unl - 0.4).mean(dim=1)
    torch.testing.assert_close(CCL(weight=3.0, margin=0.4)(pos, extra, unl), expected)


@pytest.mark.parametrize("loss", [BCE(), CCL()], ids=repr)
def test_the_balance_of_a_pointwise_loss_does_not_depend_on_n(loss):
    pos, extra, unl = cosines()
    torch.testing.assert_close(loss(pos, extra, unl), loss(pos, extra, torch.cat([unl, unl, unl], 1)))


# --- the floor -----------------------------------------------------------------------------------------


def clamped_row():
    """The anchor is far below the unlabelled items and above the extra positives: the difference is < 0."""
    return torch.tensor([0.0]), torch.tensor([[-3.0, -2.0]]), torch.tensor([[4.0, 5.0]])


def test_hard_clamp_stops_the_gradient_and_counts_the_row():
    loss = DPL(tau=0.3)
    rows = loss.rows(*clamped_row())
    value, gradient = value_and_gradient(loss, *clamped_row())
    assert rows.clamped.tolist() == [True]
    assert value.item() == pytest.approx(-torch.log(torch.tensor(0.01)).item())
    assert gradient.abs().sum() == 0


def test_relative_clamp_keeps_the_uncorrected_gradient_alive():
    loss = DPL(tau=0.3, clamp="relative")
    _, gradient = value_and_gradient(loss, *clamped_row())
    _, uncorrected = value_and_gradient(DPL(tau=0.0, floor=1e-9), *clamped_row())
    assert loss.rows(*clamped_row()).clamped.tolist() == [True]
    torch.testing.assert_close(gradient, uncorrected)
    assert gradient[0, 0] < -0.9


def test_relative_clamp_equals_the_plain_value_where_it_does_not_bind():
    inputs = scores()
    free = ~DPL(tau=0.05, clamp="relative").rows(*inputs).clamped & ~DPL(tau=0.05).rows(*inputs).clamped
    assert free.sum() > 50
    torch.testing.assert_close(DPL(tau=0.05, clamp="relative")(*inputs)[free], DPL(tau=0.05)(*inputs)[free])


def test_losses_without_a_floor_count_nothing():
    assert BPR().rows(*scores()).clamped is None
    assert InfoNCE().rows(*scores()).clamped is None
    assert [kind().rows(*scores()).clamped for kind in (SL, BSL, PSL)] == [None] * 3


# --- the prior -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DCL, HCL, DPL, DPLHard, DPLHalf])
def test_one_prior_per_user_is_each_row_with_its_own_number(kind):
    pos, extra, unl = scores(b=6)
    users = torch.tensor([2, 0, 1, 1, 2, 0])
    tau = (0.0, 0.1, 0.3)
    together = kind(tau=tau)(pos, extra, unl, users)
    for b, u in enumerate(users.tolist()):
        alone = kind(tau=tau[u])(pos[b : b + 1], extra[b : b + 1], unl[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone)


def test_priors_come_as_arrays_too():
    assert DPL(tau=torch.tensor([0.25, 0.5])).tau == (0.25, 0.5)
    assert DPL(tau=torch.tensor(0.25)).tau == 0.25


def test_density_is_filled_in_from_the_data():
    assert DPL(tau="density").with_density(0.06).tau == 0.06
    assert DPL(tau=0.2).with_density(0.06).tau == 0.2
    with pytest.raises(InputError, match="with_prior"):
        DPL(tau="density")(*scores())


@pytest.mark.parametrize("tau", [-0.01, 1.0, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [DCL, HCL, DPL, DPLHard, DPLHalf])
def test_prior_out_of_range_is_an_error_with_the_value_and_the_range(kind, tau):
    with pytest.raises(InputError, match=rf"tau = {tau}.* must be a finite number ≥ 0 and < 1"):
        kind(tau=tau)


def test_prior_of_one_user_out_of_range_names_the_user():
    with pytest.raises(InputError, match=r"tau of user 1 = .*1\.2"):
        DPL(tau=[0.1, 1.2])


def test_prior_per_user_wants_the_users():
    with pytest.raises(InputError, match="pass users="):
        DPL(tau=[0.1, 0.2])(*scores())
    with pytest.raises(InputError, match="tau has 2 users, but a row is of user 5"):
        DPL(tau=[0.1, 0.2])(*scores(b=1), users=torch.tensor([5]))


def test_unknown_word_for_the_prior():
    with pytest.raises(InputError, match="Did you mean 'density'"):
        DPL(tau="densty")


def test_a_word_becomes_the_prior_that_was_found():
    assert DPL(tau="auto").with_prior(0.1).tau == 0.1
    assert DPL(tau="per-user").with_prior([0.1, 0.2]).tau == (0.1, 0.2)
    assert DPL(tau=0.3).with_prior(0.1).tau == 0.3
    assert DPL(tau="auto").with_density(0.1).tau == "auto"
    assert BPR().with_prior(0.1) == BPR()
    with pytest.raises(InputError, match=r"DPL\(tau='auto'\) does not know the data"):
        DPL(tau="auto")(*scores())


# --- bad input and habits ------------------------------------------------------------------------------


def test_wrong_shapes_are_named():
    pos, extra, unl = scores()
    with pytest.raises(InputError, match=r"got \[64\], \[64, 4\] and \[64\]"):
        DPL(tau=0.1)(pos, extra, unl[:, 0])
    with pytest.raises(InputError, match="N = 0"):
        DPL(tau=0.1)(pos, extra, unl[:, :0])
    with pytest.raises(InputError, match=r"got \[\], \[0\] and \[64, "):
        BPR()(pos[0], None, unl)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InfoNCE(temperature=0.0), "temperature = 0.0 .* > 0"),
        (lambda: SL(temperature=-1.0), "temperature = -1.0 .* > 0"),
        (lambda: BSL(temperature=float("nan")), "temperature = nan .* > 0"),
        (lambda: BSL(positive_temperature=0.0), "positive_temperature = 0.0 .* > 0"),
        (lambda: PSL(temperature=0.0), "temperature = 0.0 .* > 0"),
        (
            lambda: PSL(surrogate="tan"),
            "surrogate = 'tan' is not known; choose one of 'tanh', 'relu', 'atan'",
        ),
        (lambda: DPL(tau=0.1, floor=0.0), "floor = 0.0 .* > 0 and ≤ 1"),
        (lambda: DPL(tau=0.1, clamp="soft"), "clamp = 'soft' is not known; choose one of 'hard', 'relative'"),
        (lambda: HCL(tau=0.1, beta=-1.0), "beta = -1.0 .* ≥ 0"),
        (lambda: BCE(weight=0.0), "weight = 0.0 .* > 0"),
        (lambda: CCL(weight=-1.0), "weight = -1.0 .* > 0"),
        (lambda: CCL(margin=1.0), "margin = 1.0 .* ≥ -1 and < 1"),
        (lambda: DCL(tau=0.1, min_score=float("-inf")), "min_score = -inf"),
    ],
)
def test_bad_parameters_are_named_with_their_range(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("name", LOSSES)
def test_every_registered_loss_is_frozen_comparable_and_has_an_oracle(name):
    loss = LOSSES[name]()
    assert name in ORACLES
    assert loss == LOSSES[name]()
    assert hash(loss) == hash(LOSSES[name]())
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.tau = 0.5


@pytest.mark.parametrize("name", LOSSES)
def test_every_registered_loss_states_its_own_family_and_all_its_parameters(name):
    loss = LOSSES[name]()
    assert vars(type(loss))["family"] == loss.family
    declared = parameters_of(type(loss))
    assert all(isinstance(parameter, Parameter) for parameter in declared.values())
    assert list(declared) == [field.name for field in dataclasses.fields(loss) if field.repr]


def test_a_derived_class_has_no_family_of_its_own():
    """It may compute something else."""

    class Other(DPL):
        pass

    assert has_row_form(DPL(tau=0.1))
    assert not has_row_form(Other(tau=0.1))


def test_losses_of_a_family_have_the_same_class_or_formula():
    """What engines take for granted of a row."""
    by_row = {row: {kind for kind in LOSSES.values() if kind.family.row is row} for row in Row}
    assert all(by_row.values())
    assert all(issubclass(kind, Pointwise) for kind in by_row[Row.POINTWISE])
    assert by_row[Row.DEBIASED_MEAN] == {DPL, DPLHard}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("where", ["pos", "extra", "unlabelled"])
def test_a_score_that_is_not_a_number_is_never_hidden(name, where):
    kind = LOSSES[name]
    if where == "extra" and not kind.uses_extra:
        pytest.skip("this loss does not look at extra positives")
    if where == "pos" and kind is BSL:
        pytest.skip("this loss does not look at the anchor where there are extra positives")
    loss = kind(tau=0.1) if kind.uses_prior else kind()
    inputs = dict(zip(("pos", "extra", "unlabelled"), scores(b=2), strict=True))
    inputs[where][0] = float("nan")
    rows = loss(**inputs)
    assert rows[0].isnan()
    assert rows[1].isfinite()


@pytest.mark.parametrize("kind", [DCL, HCL, DPL, DPLHard, DPLHalf])
def test_a_prior_close_to_one_is_safe_in_float32(kind):
    pos, extra, unl = (x.float() for x in scores())
    assert kind(tau=1 - 1e-9)(pos, extra, unl).isfinite().all()


@pytest.mark.parametrize("tau", [[], [[0.1], [0.2]], None, ["a"], {}])
def test_a_prior_of_another_shape(tau):
    with pytest.raises(InputError, match="give a number, one number per user, or 'density'"):
        DPL(tau=tau)


def test_numpy_numbers_become_plain_ones():
    import numpy as np

    loss = DPL(tau=np.float32(0.25), floor=np.float64(0.5))
    assert (type(loss.tau), type(loss.floor)) == (float, float)
