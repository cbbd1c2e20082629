"""The written answers of the finished studies: every number in them is computed again from the lines."""

import re
import statistics
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from truepair_lab import store
from truepair_lab.answers import OTHER_LINES, Answer, checksum
from truepair_lab.lines import read_lines
from truepair_lab.markdown import share, short, signed
from truepair_lab.paper.report import page as paper_page
from truepair_lab.paper.report import questions as q
from truepair_lab.paper.report.ablation import ablation
from truepair_lab.paper.report.bars import AUTHORS, reached
from truepair_lab.paper.report.claims import CLAIMS
from truepair_lab.paper.report.clean_protocol import rankings
from truepair_lab.paper.report.names import model_name
from truepair_lab.paper.report.published import PUBLISHED, published
from truepair_lab.paper.report.study_runs import study_of
from truepair_lab.paper.running.contrasts import model_key
from truepair_lab.prior_study import lines as prior_lines
from truepair_lab.prior_study import words as prior_page
from truepair_lab.prior_study.auto import SETUPS
from truepair_lab.prior_study.groups import WORLDS, agrees, groups_of
from truepair_lab.prior_study.tables import auto_lines_of, difference, grid_means
from truepair_lab.quality import report as quality_page
from truepair_lab.quality.cases import AIMS
from truepair_lab.quality.contestants import BASELINES, FAMILIES
from truepair_lab.quality.part_scores import read_contest
from truepair_lab.quality.tables import Contest
from truepair_lab.statistics import difference as apart
from truepair_lab.truth.coat import TWO_PRIORS
from truepair_lab.truth.lines import POSTERIOR, PosteriorLine, TruthLine
from truepair_lab.truth.report import page as truth_page
from truepair_lab.truth.report.posterior import trials_of
from truepair_lab.truth.report.summary import settings_of, title
from truepair_lab.truth.treatments import TREATMENTS

RESULTS = Path(__file__).parents[2] / "results"


def flat(text):
    """Without line breaks."""
    return re.sub(r"\s+", " ", text)


def test_an_answer_is_for_its_own_lines_in_any_order():
    answer = Answer(checksum(["a", "b"], ["c"]), "yes")
    assert answer.of(["c", "b"], ["a"]) == "## Answer\n\nyes"
    assert answer.of(["c", "b"]) == f"## Answer\n\n{OTHER_LINES}"


@pytest.mark.parametrize("page", ["paper", "truth", "prior", "quality"])
def test_the_pages_in_the_docs_have_their_answers(page):
    text = (RESULTS.parent / "docs" / "lab" / f"{page}.md").read_text(encoding="utf-8")
    answers = {"paper": paper_page, "truth": truth_page, "prior": prior_page, "quality": quality_page}
    assert answers[page].ANSWER.text in text


# --- the paper -----------------------------------------------------------------------------------------


@cache
def paper():
    return read_lines(RESULTS / "paper")


PAPER = flat(paper_page.ANSWER.text)


def test_paper_reproduction():
    study = study_of(paper(), "paper")
    pairs = [(study.mean(*row), published(*row, "ndcg@20")) for row in PUBLISHED]
    gaps = [own.value / printed.trusted - 1 for own, printed in pairs if own and printed.trusted]
    ends = f"{statistics.median(gaps):+.1%} over {len(gaps)} cells, from {min(gaps):+.1%} to {max(gaps):+.1%}"
    assert f"differs from the printed figures by a median of {ends}." in PAPER
    bars = reached(paper())
    alone, met = sum(bool(bar.met(AUTHORS)) for bar in bars), sum(bool(bar.met()) for bar in bars)
    assert (
        f"{len(bars)} best DPL figures, {alone} are reached with the authors' settings and {met} with"
        in PAPER
    )


def test_paper_claims_and_questions():
    marks = Counter(claim.judge(paper()).mark for claim in CLAIMS)
    held = [marks[mark] for mark in ("holds", "holds in part", "does not hold here")]
    assert sum(held) == len(CLAIMS)
    assert f"{len(CLAIMS)} claims, {held[0]} hold, {held[1]} hold in part and {held[2]} do not" in PAPER
    authors, tuned, best = (
        Counter(sign for sign in q.signs(list(ask(paper()))) if sign is not None)
        for ask in (q.better("dpl", "bpr"), q.clean_dpl_over_bpr, q.clean_dpl_best)
    )
    assert (
        f"better in {authors[1]} of {authors.total()} cases and significantly worse in {authors[-1]}" in PAPER
    )
    assert f"better in {tuned[1]} of {tuned.total()} cases and worse in {tuned[-1]}." in PAPER
    assert f"in {best[-1]} of {best.total()} cases, and significantly the best in {best[1]}." in PAPER


def test_paper_parts_of_dpl():
    parts = ablation(paper())
    small, large = parts["ml-100k", "mf"], parts["ml-1m", "mf"]
    names = ("half", "tau=0", "n-alone", "hard")
    gaps = {name: [apart(p[name].last, p["dpl"].last) for p in (small, large)] for name in names}
    texts = {name: " and ".join(signed(gap.value) for gap in found) for name, found in gaps.items()}
    assert f"½ for the extra positives {texts['half']} (the second is not significant)" in PAPER
    assert f"no correction (τ = 0) {texts['tau=0']} (neither is)" in PAPER
    assert f"BPR with as many unlabelled items {texts['n-alone']};" in PAPER
    assert f"hard weights with τ raised {texts['hard']}." in PAPER
    signs = {name: [gap.sign for gap in found] for name, found in gaps.items()}
    assert [signs[name] for name in ("half", "tau=0", "n-alone", "hard")] == [
        [-1, 0],
        [0, 0],
        [-1, -1],
        [-1, -1],
    ]


def test_paper_references_and_advice():
    signs, rows = {}, {}
    for name, ranking in rankings(paper()).items():
        trained, solved = ranking.best(reference=False), ranking.best(reference=True)
        signs[name] = ranking.gap(trained, solved).sign
        (best, mean), *others = ranking.models
        even = [model_name(*m) for m, _ in others if ranking.gap(m, best).sign == 0]
        matrix = ("ease", "itemknn", "popularity")
        small = next(m for m, _ in ranking.models if m[1] not in matrix)
        less = (
            "the same" if small == best else f"{model_name(*small)}, {signed(ranking.gap(small, best).value)}"
        )
        rows[name] = f"| {model_name(*best)} | {short(mean.value)} | {', '.join(even) or 'none'} | {less} |"
    assert signs == {"ml-100k": 0, "ml-1m": -1, "yelp2018": 1, "gowalla": -1}
    assert "on Yelp2018, is beaten on MovieLens-1M and Gowalla, and does not differ" in PAPER
    for row in rows.values():
        assert row in PAPER


def test_paper_yahoo():
    study = study_of(paper(), "paper")
    for encoder, lowest in (("mf", "dpl"), ("lightgcn", "hcl")):
        losses = ("bpr", "infonce", "dcl", "hcl", "dpl")
        means = {m: study.mean("yahoo-r3", encoder, m).value for m in losses}
        assert (max(means, key=means.get), min(means, key=means.get)) == ("infonce", lowest)


# --- the truth lab -------------------------------------------------------------------------------------


@cache
def truth():
    return settings_of(store.read(RESULTS / "truth", TruthLine)[0])


@cache
def posterior():
    return trials_of(store.read(RESULTS / "truth" / POSTERIOR, PosteriorLine)[0])


TRUTH = flat(truth_page.ANSWER.text)
MULTIPLES = {"dpl-tau-0": 0, "dpl-tau-half": 0.5, "dpl": 1, "dpl-tau-2": 2, "dpl-tau-5": 5}


def gap(name):
    return [closed and f"{round(100 * closed.value)}%" for closed in (s.closed(name) for s in truth())]


def significant(a, b):
    """signed text where significant, else None."""
    means = [setting.difference(a, b) for setting in truth()]
    return [signed(mean.value) if mean.is_significant else None for mean in means]


def test_truth_gaps_closed():
    names = [setting.case for setting in truth()]
    assert names == ["simulation", "simulation", "kuairec", "jester5k", "coat"]
    random, popular, kuairec, jester, coat = gap("dpl")
    assert (kuairec, coat) == (None, None)
    expected = f"{random} on the simulation with random exposure, {popular} with popularity exposure, and"
    assert expected in TRUTH
    assert f"and {jester} on Jester." in TRUTH
    random, popular, _, jester, _ = gap("clean-draws")
    assert f"close {random} and {popular} of the gap on the two simulations and {jester} on Jester" in TRUTH


def test_truth_differences():
    _, popular, _, jester, coat = found = significant("dpl", "bpr")
    assert found[0] is found[2] is None
    assert (
        f"popularity exposure ({popular}) and on Coat ({coat}), significantly worse on Jester ({jester})"
        in TRUTH
    )
    *none, jester, coat = significant("dpl", "dpl-tau-0")
    assert none == [None] * 3
    assert f"is significant on Coat ({coat}) and on Jester ({jester}) only." in TRUTH
    assert significant("dpl-half", "dpl") == [None] * 5
    *none, jester, coat = significant("dpl-user", "dpl")
    assert [*none, coat] == [None] * 4
    assert f"significantly worse on Jester ({jester})" in TRUTH


def test_truth_wrong_priors():
    means = [{name: setting.mean(name).value for name in MULTIPLES} for setting in truth()]
    best = [MULTIPLES[max(of, key=of.get)] for of in means]
    assert "The best multiple of it is {}, {}, {}, {} and {},".format(*best) in TRUTH
    assert sum(min(of, key=of.get) == "dpl" for of in means) == 3
    assert "on three of the five data the true τ itself ranks lowest" in TRUTH


def test_truth_best_without_labels():
    best = []
    for setting in truth():
        means = {name: mean.value for name in TREATMENTS if (mean := setting.mean(name))}
        best.append(max(means, key=means.get))
    assert best == ["dpl-hard", "dpl-tau-5", "dpl-tau-5", "bns", "dpl-tau-2"]
    assert title("dpl-hard") == "DPL, hard weights"
    for at, name in ((0, "dpl-hard"), (1, "dpl-tau-5"), (3, "bns")):
        assert f"({gap(name)[at]}" in TRUTH


def test_truth_probes():
    simulation, jester = truth()[0], truth()[3]
    for setting, text in ((simulation, "random exposure"), (jester, "Jester")):
        plain, own = (short(setting.probe("dpl", m).value, 3) for m in ("p plain bias", "p bias"))
        assert f"{text} ({plain} becomes {own})" in TRUTH
    for setting in truth():
        plain, own = (setting.probe("dpl", m).value for m in ("p plain spread", "p spread"))
        assert own > plain
    cosines = {n: [s.probe(n, "cosine").value for s in truth()] for n in ("bpr", "dpl")}
    bpr, dpl = (f"{short(min(of), 3)} to {short(max(of), 3)}" for of in cosines.values())
    assert f"has a cosine of {bpr} with the supervised one, that of DPL {dpl}." in TRUTH
    names = ("dns", "bns", "uniform")
    shares = {name: [s.probe("bpr", f"share {name}").value for s in truth()] for name in names}
    dns, bns, uniform = (f"{min(of):.0%} to {max(of):.0%}" for of in shares.values())
    assert f"DNS draws {dns} hidden positives and BNS {bns}, where uniform draws have {uniform}." in TRUTH


def sign(mean):
    return (1 if mean.value > 0 else -1) if mean.is_significant else 0


def test_truth_weights_by_a_first_model():
    gains = {n: [t.gain(n) for t in posterior()] for n in ("posterior", "posterior-auto")}
    signs = {
        n: [(g.is_significant and (1 if g.value > 0 else -1)) or 0 for g in of] for n, of in gains.items()
    }
    assert signs == {"posterior": [1, 0, 0, 0, -1], "posterior-auto": [1, 1, 0, -1, -1]}
    true, found = ([signed(g.value) for g in of] for of in gains.values())
    closed = round(100 * posterior()[0].closed("posterior"))
    assert (
        f"({true[0]}, {closed}% of the gap to supervised InfoNCE), significantly worse on Coat ({true[4]})"
        in TRUTH
    )
    assert (
        f"both simulations ({found[0]}, {found[1]}) and worse on Jester ({found[3]}) and Coat ({found[4]})."
        in TRUTH
    )
    coat = posterior()[4]
    assert [coat.first(n).scoring for n in ("posterior", "posterior-auto", "infonce")] == [
        "dot",
        "dot",
        "cosine",
    ]
    kinds = [coat.gain(f"{name}-kind") for name in ("posterior", "posterior-auto")]
    assert not any(mean.is_significant for mean in kinds)
    assert f"not significant ({signed(kinds[0].value)}, {signed(kinds[1].value)})." in TRUTH
    seen = [(t.gain("posterior").value > 0) == (t.gain("posterior", True).value > 0) for t in posterior()]
    assert seen == [True] * 4 + [False]


def test_both_true_priors_of_coat():
    coat = next(setting for setting in truth() if setting.case == "coat")
    by_study = next(group for group in prior() if group.study == "coat").lines[0]
    chosen = 24 / 300  # of all pairs: everybody chose 24 of the 300 coats to rate
    assert by_study.tau == pytest.approx(coat.lines[0].tau * (1 - chosen) / (1 - by_study.observed), rel=1e-4)
    lab, study = short(coat.lines[0].tau, 3), short(by_study.tau, 3)
    assert f"Coat's true τ is {lab} in [the truth lab](truth.md) and {study} in" in flat(TWO_PRIORS)


# --- the prior study -----------------------------------------------------------------------------------


@cache
def prior_all():
    return prior_lines.read(RESULTS / "prior")[0]


@cache
def prior():
    return groups_of(prior_all())


PRIOR = flat(prior_page.ANSWER.text)


def group_of(study, exposure):
    return next(group for group in prior() if (group.study, group.exposure) == (study, exposure))


def test_prior_estimates():
    errors = [f"{group_of(name, 'random').error('recommended'):.0%}" for name in WORLDS]
    assert f"median error is {errors[0]} in simulated worlds and {errors[1]} in noisy ones" in PRIOR
    random = [g for g in prior() if g.exposure == "random"]
    parts = [[g for g in random if (g.study in WORLDS) == simulated] for simulated in (True, False)]
    covered = [f"{sum(g.n_covered for g in of)} of {sum(len(g.lines) for g in of)}" for of in parts]
    assert f"the truth in {covered[0]} simulated cases and {covered[1]} with real tastes" in PRIOR
    popular = group_of("worlds", "popularity")
    ratios = [level.ratio("recommended") for level in popular.by_level()]
    assert f"{min(ratios):.2f} to {max(ratios):.2f} of the truth in the median" in PRIOR
    assert f"the truth in {popular.n_covered} of {len(popular.lines)} simulated cases" in PRIOR
    blocks = [group_of(name, "popularity") for name in ("kuairec", "jester5k")]
    kuairec, jester = (f"{g.n_covered} of {len(g.lines)}" for g in blocks)
    assert f"KuaiRec by popularity it holds in {kuairec} cases, on Jester in {jester}." in PRIOR


def test_prior_coat():
    coat = group_of("coat", "self")
    first, second, third = (share(line.estimate) for line in coat.lines)
    assert (
        f"the truth is {share(coat.lines[0].tau)} and the estimates are {first}, {second} and {third};"
        in PRIOR
    )
    assert f"{coat.n_covered} of {len(coat.lines)} intervals hold the truth" in PRIOR
    assert f"separation of {coat.median(lambda line: line.separation):.2f} is" in PRIOR
    least = min(max(line.methods["bbe"], line.methods["dedpul"]) / line.estimate for line in coat.lines)
    assert f"an upper bound of {least:.0f} times the estimate" in PRIOR


def test_prior_trust_and_bounds():
    every = [line for group in prior() for line in group.lines]
    random = [line for group in prior() if group.exposure == "random" for line in group.lines]
    ratios = [
        [line.estimate / line.tau for line in random if agrees(line) == agree] for agree in (True, False)
    ]
    trusted, other = (f"{min(of):.2f} to {max(of):.2f}" for of in ratios)
    assert f"is {trusted} times the truth in all {len(ratios[0])} cases" in PRIOR
    assert f"it is {other} times in {len(ratios[1])}." in PRIOR
    real = [line for group in prior() if group.study not in WORLDS for line in group.lines]
    assert f"agree in {sum(map(agrees, real))} of {len(real)} cases" in PRIOR
    blind = [line for line in every if not line.seen]
    ends = [
        [value(line) / line.tau for line in blind]
        for value in (lambda x: x.estimate, lambda x: x.methods["plateau"])
    ]
    given, plateau = (f"{min(of):.2f} to {max(of):.2f}" for of in ends)
    assert f"({len(blind)} of {len(every)} cases)" in PRIOR
    assert f"recommended, {given} times the truth; the plateau would be {plateau} times" in PRIOR
    assert all(line.methods[name] >= line.tau for line in random for name in ("dedpul", "bbe"))
    assert f"in all {len(random)} cases that were observed at random" in PRIOR
    rest = [line for group in prior() if group.exposure != "random" for line in group.lines]
    above = {name: sum(line.methods[name] >= line.tau for line in rest) for name in ("dedpul", "bbe")}
    assert f"in {above['dedpul']} and BBE in {above['bbe']} of {len(rest)} cases" in PRIOR


def test_prior_users():
    known = [group for group in prior() if group.per_user("error own") is not None]
    assert all(abs(g.per_user("rank own") - g.per_user("rank density")) <= 0.025 for g in known)
    wins = {
        name: sum(g.per_user("error own") < g.per_user(f"error {name}") for g in known)
        for name in ("one", "density", "scaled")
    }
    assert (
        f"for all in {wins['one']} of {len(known)} settings, than plain counts in {wins['density']}," in PRIOR
    )
    assert f"than counts scaled to the estimate in {wins['scaled']}." in PRIOR


def test_prior_training():
    times, hidden, gaps = {}, {}, {}
    for name in SETUPS:
        found = auto_lines_of(prior_all(), name)
        tau = {source: statistics.fmean(line.tau for line in found[source]) for source in found}
        times[name] = f"{tau['tuned'] / tau['auto']:.2g} times"
        odds = (1 - tau["density"]) / tau["density"]
        hidden[name] = f"{tau['tuned'] * odds:.2g}", f"{tau['auto'] * odds:.2g}"
        gaps[name] = difference(found, "auto", "tuned")
        if name != "gowalla":
            assert {line.tau for line in found["tuned"]} == {0.4} == {max(grid_means(found["tuned"]))}
    assert {name: mean.is_significant for name, mean in gaps.items()} == {
        "ml-100k": False,
        "ml-1m": True,
        "gowalla": False,
    }
    assert f"the tuned τ is {times['ml-1m']} the estimate" in PRIOR
    assert f"significantly better by {short(-gaps['ml-1m'].value)};" in PRIOR
    assert f"MovieLens-100k ({times['ml-100k']}) and Gowalla ({times['gowalla']})" in PRIOR
    tuned, estimated = zip(*hidden.values(), strict=True)
    assert "{}, {} and {} hidden positives for each observed one".format(*tuned) in PRIOR
    assert "(the estimate says {}, {} and {})".format(*estimated) in PRIOR


# --- the quality contest -------------------------------------------------------------------------------

QUALITY = flat(quality_page.ANSWER.text)


@cache
def contest():
    return Contest(read_contest(RESULTS / "quality"))


def family_gap(case, other):
    return contest().gap(case, "family full-catalogue", f"family {other}")


def ranked(case, model, *others):
    """The signs of a contestant's differences from others."""
    return [contest().gap(case, model_key(model), model_key(("-", other))).sign for other in others]


BETTER = ["ml-1m", "gowalla-standard", "yelp2018-standard"]
EVEN = ["ml-100k", "kuairec", "coat"]


def test_quality_answer_lines():
    lines = contest().lines
    assert checksum(lines.runs, lines.trials, lines.contrasts, lines.parts) == quality_page.ANSWER.checksum
    assert not lines.broken


def test_quality_answer():
    signs = {c: [family_gap(c, other).sign for other in ("EASE", "iALS")] for c in contest().cases}
    assert [case for case, found in signs.items() if found == [1, 1]] == BETTER
    assert [case for case, found in signs.items() if found == [0, 0]] == EVEN
    for case in BETTER:  # EASE with powers is what its family chooses
        assert ranked(case, contest().chosen(case), *BASELINES) == [1, 1, 1]
        assert contest().chosen(case, "EASE") == ("-", "ease-powers")
    ease, ials = (sorted(family_gap(case, other).value for case in BETTER) for other in ("EASE", "iALS"))
    assert f"by {short(ease[0])} to {short(ease[-1])} over EASE with powers" in QUALITY
    assert f"and by {short(ials[0])} to {short(ials[-1])} over iALS." in QUALITY
    assert [case for case in BETTER if ranked(case, ("mf", "exact-infonce"), *BASELINES) != [1, 1, 1]] == [
        "ml-1m"
    ]
    assert ranked("ml-1m", ("mf", "exact-infonce"), "ease-powers") == [-1]
    assert contest().chosen("ml-1m") == ("mf+ease", "exact-infonce")
    popularity, (_, best) = contest().mean("kuairec", ("-", "popularity")), contest().models("kuairec")[0]
    assert (
        f"popularity alone has {short(popularity.value)}, the best contestant {short(best.value)}." in QUALITY
    )


def test_quality_aims():
    missed = [
        aim - contest().mean(case, contest().chosen(case), metric).value
        for case, aims in AIMS.items()
        for metric, aim in aims.items()
    ]
    short_of = sorted(gap for gap in missed if gap > 0)
    assert (len(missed), len(short_of)) == (6, 2)
    assert "Of six aims four are met" in QUALITY
    assert f"missed by {short(short_of[0])} and {short(short_of[1])}." in QUALITY


def test_quality_trials():
    lines = contest().lines
    counts = Counter((trial.dataset, trial.encoder, trial.method) for trial in lines.trials)
    sums = {
        case: {name: sum(counts[case, *model] for model in of) for name, of in FAMILIES.items()}
        for case in contest().cases
    }
    fewer = {
        case: found
        for case, found in sums.items()
        if any(n < found["full-catalogue"] for n in found.values())
    }
    assert fewer == {"ml-100k": {"full-catalogue": 274, "EASE": 274, "iALS": 66}}
    assert "iALS has 66 trials on MovieLens-100k instead of 274" in QUALITY


def test_quality_choice_by_the_first_part_alone():
    own = FAMILIES["full-catalogue"]
    first = {
        case: max(
            (t for t in contest().lines.trials if t.dataset == case and (t.encoder, t.method) in own),
            key=lambda trial: (trial.score or 0.0, -trial.number),
        )
        for case in contest().cases
    }
    chosen = {case: (trial.encoder, trial.method) for case, trial in first.items()}
    others = {case: model for case, model in chosen.items() if model != contest().chosen(case)}
    assert others == {"yelp2018-standard": ("mf+ease", "exact-infonce"), "ml-100k": ("mf", "exact-infonce")}
    protocol = flat(quality_page._PROTOCOL)
    assert "would choose its blend with EASE on Yelp2018 and InfoNCE on MovieLens-100k." in protocol


def test_quality_table_of_the_readme():
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    rows = {
        "full-catalogue softmax, blended with EASE": ("mf+ease", "exact-infonce"),
        "full-catalogue softmax": ("mf", "exact-infonce"),
        "EASE with powers": ("-", "ease-powers"),
        "EASE": ("-", "ease"),
        "iALS": ("-", "ials-scaled"),
    }
    for name, model in rows.items():
        cells = []
        for case, metrics in AIMS.items():
            cell = " / ".join(short(contest().mean(case, model, metric).value) for metric in metrics)
            is_best = model[0] != "-" and ranked(case, model, *BASELINES) == [1, 1, 1]
            cells.append(f"**{cell}**" if is_best else cell)
        assert f"| {name} | {' | '.join(cells)} |" in text
