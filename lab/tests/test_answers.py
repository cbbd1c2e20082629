"""The written answers of the finished studies: every number in them is computed again from the lines."""

import json
import re
import statistics
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from truepair.data.simulation import EXPOSURES
from truepair.prior import ratios as ratio_methods
from truepair.prior.estimate import METHODS, RANDOM
from truepair_lab import store
from truepair_lab.lines import digest, read_lines
from truepair_lab.markdown import share, short, signed
from truepair_lab.paper.report import page as paper_page
from truepair_lab.paper.report import questions as q
from truepair_lab.paper.report.ablation import ablation
from truepair_lab.paper.report.ablation import differences as differences_of
from truepair_lab.paper.report.bars import AUTHORS, reached
from truepair_lab.paper.report.causes import CHANGES
from truepair_lab.paper.report.claims import CLAIMS
from truepair_lab.paper.report.clean_protocol import rankings
from truepair_lab.paper.report.names import model_name
from truepair_lab.paper.report.published import PUBLISHED, published
from truepair_lab.paper.report.study_runs import study_of
from truepair_lab.paper.running.contrasts import model_key
from truepair_lab.prior_study import lines as prior_lines
from truepair_lab.prior_study import words as prior_page
from truepair_lab.prior_study.auto import SETUPS
from truepair_lab.prior_study.groups import WORLDS, agrees, groups_of, is_wrong, warned
from truepair_lab.prior_study.tables import auto_lines_of, difference, grid_means, significant_pairs
from truepair_lab.quality import report as quality_page
from truepair_lab.quality.cases import AIMS, NDCG, RECALL
from truepair_lab.quality.comparisons import debiasing_pairs
from truepair_lab.quality.contestants import BASELINES, FAMILIES
from truepair_lab.quality.part_scores import choice_of, read_contest, scored_trials
from truepair_lab.quality.settled import (
    chosen_settings,
    final_parameters,
    mean_of,
    runs_of,
    settings_of_trial,
)
from truepair_lab.quality.tables import Contest
from truepair_lab.reporting.answers import OTHER_LINES, Answer, checksum
from truepair_lab.statistics import corrected
from truepair_lab.statistics import difference as apart
from truepair_lab.truth.coat import TWO_PRIORS
from truepair_lab.truth.lines import POSTERIOR, PosteriorLine, TruthLine
from truepair_lab.truth.report import page as truth_page
from truepair_lab.truth.report.posterior import SHOWN, trials_of
from truepair_lab.truth.report.summary import COMPARED, settings_of, title
from truepair_lab.truth.treatments import TREATMENTS

RESULTS = Path(__file__).parents[1] / "results"
ROOT = Path(__file__).parents[2]  # the product: its README and docs


def flat(text):
    """Without line breaks."""
    return re.sub(r"\s+", " ", text)


def test_an_answer_is_for_its_own_lines_in_any_order():
    answer = Answer(checksum(["a", "b"], ["c"]), "yes")
    assert answer.of(["c", "b"], ["a"]) == "## Answer\n\nyes"
    assert answer.of(["c", "b"]) == f"## Answer\n\n{OTHER_LINES}"


@pytest.mark.parametrize("page", ["paper", "truth", "prior", "quality"])
def test_the_pages_in_the_docs_have_their_answers(page):
    text = (RESULTS.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
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
    held = [marks[mark] for mark in ("holds", "holds in part", "does not hold here", "not shown")]
    assert sum(held) == len(CLAIMS)
    counts = f"{held[0]} hold, {held[1]} hold in part, {held[2]} do not hold here and {held[3]} are not shown"
    assert f"Of the paper's {len(CLAIMS)} claims, {counts}:" in PAPER
    assert f"of its {len(CLAIMS)} claims, {counts}." in flat((ROOT / "README.md").read_text())
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
    gaps = {name: [differences_of(p)[name] for p in (small, large)] for name in names}
    texts = {name: " and ".join(signed(gap.value) for gap, _ in found) for name, found in gaps.items()}
    assert (
        f"½ for the extra positives {texts['half']}, no correction (τ = 0) {texts['tau=0']} (none of" in PAPER
    )
    assert f"BPR with as many unlabelled items {texts['n-alone']};" in PAPER
    assert f"hard weights with τ raised {texts['hard']} (the second is not significant)." in PAPER
    signs = {name: [sign for _, sign in found] for name, found in gaps.items()}
    assert signs == {"half": [0, 0], "tau=0": [0, 0], "n-alone": [-1, -1], "hard": [-1, 0]}
    soft, top = (
        [short(-apart(p[name].last, p[f"{name}-alone"].last).value) for p in (small, large)]
        for name in ("hard", "dns")
    )
    assert q.signs(list(q.hard_needs_tau(paper()))) == [-1, 0, -1, -1]
    assert f"hard weights are significantly better by {soft[0]} and {soft[1]}, and the N" in PAPER
    assert f"(DNS) by {top[0]} (not significant) and {top[1]} (significant)." in PAPER


BELOW = flat(paper_page.BELOW_PRINT.text)
SPARSE = ("gowalla", "yelp2018")


def below(dataset, encoder, method):
    """How far below the paper, as a share."""
    return 1 - authors(dataset, encoder, method) / printed(dataset, encoder, method)


def authors(dataset, encoder, method):
    """NDCG@20 with the authors' settings."""
    return study_of(paper(), "paper").mean(dataset, encoder, method).value


def printed(dataset, encoder, method):
    """The paper's NDCG@20."""
    return PUBLISHED[dataset, encoder, method]["ndcg@20"]


def changed(variant, dataset, encoder="mf", method="dpl"):
    """NDCG@20 with one thing changed."""
    return study_of(paper(), "causes").mean(dataset, encoder, method, variant=variant).value


def test_paper_below_print():
    dpl = {
        (d, e): f"{below(d, e, 'dpl'):.1%}" for d in (*SPARSE, "ml-100k", "ml-1m") for e in ("mf", "lightgcn")
    }
    gowalla = (
        f"{dpl['gowalla', 'mf']} (MF) and {dpl['gowalla', 'lightgcn']} (LightGCN) below the paper on Gowalla"
    )
    assert f"{gowalla}, {dpl['yelp2018', 'mf']} and {dpl['yelp2018', 'lightgcn']} on Yelp2018" in BELOW
    dense = [below(d, e, "dpl") for d in ("ml-100k", "ml-1m") for e in ("mf", "lightgcn")]
    assert f"on MovieLens it is {min(dense):.1%} to {max(dense):.1%} below." in BELOW
    info, bpr = ([below(d, "mf", m) for d in SPARSE] for m in ("infonce", "bpr"))
    assert f"InfoNCE is {-info[0]:.1%} and {-info[1]:.1%} *above*" in BELOW
    assert f"and BPR {bpr[0]:.1%} below and {-bpr[1]:.1%} above." in BELOW
    cells = [study_of(paper(), "paper").cells[d, e, "dpl", ""] for d in SPARSE for e in ("mf", "lightgcn")]
    assert max(cell.clamped for cell in cells) < 0.001
    late = [[x for epoch, x in run.curve if epoch >= 150] for cell in cells for run in cell.runs]
    assert f"at most {short(max(max(of) - min(of) for of in late))} in the four cells" in BELOW
    assert (
        f"over seeds is {short(max(statistics.stdev(c.values('ndcg@20')) for c in cells))} at most" in BELOW
    )
    for run in (run for cell in cells for run in cell.runs):
        assert (run.parameters["weight_decay"], run.parameters["batch_size"]) == (1e-6, 1024)


DECAYS = ("decay=5e-07", "decay=1e-07", "decay=1e-08", "decay=0")


def test_paper_below_print_and_weight_decay():
    best = {(d, "mf"): max(DECAYS, key=lambda variant: changed(variant, d)) for d in SPARSE}
    assert best == {("gowalla", "mf"): "decay=1e-08", ("yelp2018", "mf"): "decay=1e-07"}
    best["gowalla", "lightgcn"] = "decay=1e-07"
    values = {(d, e): (authors(d, e, "dpl"), changed(v, d, e)) for (d, e), v in best.items()}
    gowalla, yelp, graph = (f"from {short(a)} to {short(b)} on" for a, b in values.values())
    assert f"MF DPL rises {gowalla} Gowalla (at 1e-8) and {yelp} Yelp2018 (at 1e-7)" in BELOW
    assert f"LightGCN DPL on Gowalla {graph.removesuffix(' on')} (at 1e-7): " in BELOW
    bars = {place: printed(*place, "dpl") for place in values}
    closed = [(b - a) / (bars[place] - a) for place, (a, b) in values.items()]
    assert "{:.0%}, {:.0%} and {:.0%} of the gap.".format(*closed) in BELOW
    assert f"weight decay closes {min(closed):.0%} to {max(closed):.0%} of that gap" in PAPER
    left = [1 - b / bars[place] for place, (_, b) in values.items()]
    assert "{:.1%}, {:.1%} and {:.1%} remain.".format(*left) in BELOW
    whole = [below(d, e, "dpl") for d in SPARSE for e in ("mf", "lightgcn")]
    assert f"DPL is {min(whole):.1%} to {max(whole):.1%} below the paper on Gowalla and" in PAPER
    runs = [run for cell in study_of(paper(), "causes").cells.values() for run in cell.runs]
    assert {run.seed for run in runs} == {0}
    assert all(
        run.metrics["ndcg@20"] < printed(run.dataset, run.encoder, "dpl")
        for run in runs
        if run.method == "dpl"
    )
    lead = [signed(changed("decay=1e-07", d) - changed("decay=1e-07", d, "mf", "bpr")) for d in SPARSE]
    own = [signed(printed(d, "mf", "dpl") - printed(d, "mf", "bpr")) for d in SPARSE]
    assert f"from MF BPR by {lead[0]} and {lead[1]}; in the paper by {own[0]} and {own[1]}." in BELOW


def test_paper_below_print_and_other_causes():
    gaps = {v: [changed(v, d) - authors(d, "mf", "dpl") for d in SPARSE] for v in CHANGES if v}
    remain = {v: [f"{1 - changed(v, d) / printed(d, 'mf', 'dpl'):.1%}" for d in SPARSE] for v in gaps}
    assert max(abs(changed("rows=1e-06", d) - changed("decay=0", d)) for d in SPARSE) < 0.0002
    assert "as good as no weight decay: {} and {} below".format(*remain["rows=1e-06"]) in BELOW
    most = max(abs(gap) for variant in ("split=2024", "split=per-user") for gap in gaps[variant])
    assert f"changes NDCG@20 by at most {short(most)}." in BELOW
    assert "down on Yelp2018: {} and {} below.".format(*remain["split=files"]) in BELOW
    assert [gap > most for gap in gaps["split=files"]] == [True, False]
    step, batch = ([signed(gap) for gap in gaps[variant]] for variant in ("step=0.1", "batch=8192"))
    assert f"changes it by {step[0]} and {step[1]}; a batch of 8,192 by {batch[0]} and {batch[1]}." in BELOW
    assert ("yelp2018", "lightgcn", "dpl", "decay=1e-07") not in study_of(paper(), "causes").cells


def test_paper_below_print_and_other_settings():
    hard = [authors(d, "mf", "dpl-hard") for d in SPARSE]
    under = [f"{1 - value / printed(d, 'mf', 'dpl'):.1%}" for d, value in zip(SPARSE, hard, strict=True)]
    assert f"has {short(hard[0])} and {short(hard[1])}: {under[0]} and {under[1]} below the paper's" in BELOW
    for dataset in SPARSE:
        own = study_of(paper(), "paper").cells[dataset, "mf", "dpl-hard", ""].runs[0].parameters
        plain = study_of(paper(), "paper").cells[dataset, "mf", "dpl", ""].runs[0].parameters
        other = {name for name in own | plain if own.get(name) != plain.get(name)}
        assert (own["loss.tau"], other) == (0.1, {"loss", "loss.beta", "loss.tau", "loss.floor"})
    clean = [study_of(paper(), "clean").mean(d, "mf", "dpl").value for d in SPARSE]
    assert f"MF DPL has {short(clean[0])} and {short(clean[1])}, above the paper." in BELOW
    assert all(mean > printed(d, "mf", "dpl") for d, mean in zip(SPARSE, clean, strict=True))


def test_paper_floor_of_p():
    """What the page says of the sign flips is so: no p is decided by their number."""
    counts = Counter(line.dataset for line in paper().contrasts)
    text = flat(paper_page._CLEAN)
    assert f"over the {min(counts.values())} to {max(counts.values())} comparisons" in text
    least = min(line.p_corrected for line in paper().contrasts)
    assert min(line.p for line in paper().contrasts) == pytest.approx(1 / 10_001)
    assert f"at least {short(least)}: that floor" in text
    assert least < 0.05 / 5


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


# --- figures of README and guide that come from lines ----------------------------------------------------

README, GUIDE = (flat((ROOT / page).read_text(encoding="utf-8")) for page in ("README.md", "docs/guide.md"))


def test_the_readmes_table_of_the_papers_method():
    study = study_of(paper(), "clean")
    rows = {"BPR": "bpr", "DPL": "dpl", "DPL, hard samples": "dpl-hard", "HCL": "hcl"}
    rows |= {"InfoNCE over sampled items": "infonce"}
    for name, method in rows.items():
        figures = [short(study.mean(d, "mf", method).value) for d in ("ml-100k", "ml-1m")]
        assert f"| {name} | {figures[0]} | {figures[1]} |" in README
    full = re.search(r"\| InfoNCE over the full catalogue \| (\.\d+) \| (\.\d+) \|", README)
    softmax = re.search(r"\| full-catalogue softmax \| \**(\.\d+)\** \| \**(\.\d+)\** \|", README)
    assert full.groups() == softmax.groups()  # the contest's table above it
    trials = [
        trial
        for trial in paper().trials
        if trial.dataset in ("ml-100k", "ml-1m") and trial.encoder == "mf" and trial.method in rows.values()
    ]
    counts = Counter((trial.dataset, trial.method) for trial in trials).values()
    assert f"had {min(counts)} to {max(counts)} trials each" in README
    assert f"with at most {max(trial.parameters['encoder.dim'] for trial in trials)} dimensions" in README
    wide = [t for t in contest().lines.trials if t.dataset == "ml-100k" and t.method == "exact-infonce"]
    most = max(trial.parameters["encoder.dim"] for trial in wide if trial.encoder == "mf")
    assert f"with up to {most:,} dimensions" in README


def test_the_correction_in_readme_and_guide():
    gaps = [differences_of(ablation(paper())[d, "mf"])["tau=0"] for d in ("ml-100k", "ml-1m")]
    small, large = (short(-gap.value) for gap, _ in gaps)
    assert f"(τ = 0) loses {small} on MovieLens-100k and {large} on MovieLens-1M; neither" in README
    assert [sign for _, sign in gaps] == [0, 0]
    assert f"(τ = 0) NDCG@20 on MovieLens-100k falls by {small}." in GUIDE
    random, popular, *_ = gap("dpl")
    assert f"DPL closes {random} of the gap" in GUIDE
    assert f"on one simulation and {popular} on another, and is below BPR on Jester" in GUIDE
    assert not any(significant("dpl", "bpr"))
    assert truth()[3].difference("dpl", "bpr").value < 0


def test_untuned_losses():
    """../docs/losses.md has the figures of benchmarks/untuned_losses.py, whose lines are kept."""
    text = (RESULTS / "untuned" / "losses.jsonl").read_text(encoding="utf-8")
    lines = {line["model"]: line for line in map(json.loads, text.splitlines())}
    scores = {name: short(line["score"]) for name, line in lines.items()}
    page = flat((ROOT / "docs" / "losses.md").read_text(encoding="utf-8"))
    assert (
        f"NDCG@20 {scores['dcl']}, {scores['hcl']} and {scores['bsl']}; InfoNCE has {scores['infonce']};"
        in page
    )
    assert f"{lines['dcl']['clamped']:.0%} of DCL's rows are at its floor" in page
    assert f"for DCL and HCL ({scores['dcl, uniform']} and {scores['hcl, uniform']})" in page
    assert f'scoring="cosine")` ({scores["bsl, temperature 0.15"]}).' in page


def test_the_guide_on_the_prior_of_real_data():
    real = [line for group in prior() if group.study not in WORLDS for line in group.lines]
    ratios = [line.estimate / line.tau for line in real]
    assert round(min(ratios), 1) == 0.1
    assert round(max(ratios)) == 3
    assert "it was between a tenth and three times the truth" in GUIDE


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


def differences(a, b):
    """Of each data, as signed text."""
    return [signed(setting.difference(a, b).value) for setting in truth()]


def significant(a, b):
    """Of each data, whether the difference is significant."""
    return [(a, b) in setting.significant for setting in truth()]


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
    random, popular, kuairec, jester, coat = differences("dpl", "bpr")
    most = max(random, kuairec)
    assert (
        f"{popular} on the simulation with popularity exposure, {coat} on Coat, {jester} on Jester" in TRUTH
    )
    assert f"at most {most.lstrip('+')} on the other two." in TRUTH
    for pair in (("dpl", "bpr"), ("dpl", "dpl-tau-0"), ("dpl-half", "dpl"), ("dpl-user", "dpl")):
        assert significant(*pair) == [False] * 5
    *others, jester, coat = differences("dpl", "dpl-tau-0")
    assert max(abs(float(gap)) for gap in others) < min(abs(float(gap)) for gap in (jester, coat))
    assert f"it is largest on Jester ({jester}) and on Coat ({coat})." in TRUTH
    assert f"each user's own τ ({differences('dpl-user', 'dpl')[3]} on Jester)." in TRUTH


def test_truth_variants_of_dpl_by_popularity():
    popular = truth()[1]
    compared = {(name, "bpr"): popular.gain(name) for name in popular.by_name if name != "bpr"}
    compared |= {(a, b): popular.difference(a, b) for _, a, b in COMPARED}
    p = dict(zip(compared, corrected([mean.p for mean in compared.values()]), strict=True))
    assert f"(popularity exposure: p = {short(p['dpl', 'bpr'], 3)};" in TRUTH
    others = [name for name in popular.by_name if name.startswith("dpl") and name != "dpl"]
    assert all((name, "bpr") in popular.significant for name in others)
    assert f"there the other {len(others)} variants of DPL are significantly better" in TRUTH


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


def test_truth_weights_by_a_first_model():
    gains = {n: [t.gain(n) for t in posterior()] for n in ("posterior", "posterior-auto")}
    signs = {
        n: [
            round(t.gain(n).value / abs(t.gain(n).value)) * ((n, False) in t.significant) for t in posterior()
        ]
        for n in gains
    }
    assert signs == {"posterior": [1, 0, 0, 0, 0], "posterior-auto": [1, 1, 0, 0, 0]}
    true, found = ([signed(g.value) for g in of] for of in gains.values())
    closed = round(100 * posterior()[0].closed("posterior"))
    assert f"({true[0]}, {closed}% of the gap to supervised InfoNCE) and not significantly different" in TRUTH
    assert f"both simulations ({found[0]}, {found[1]}); the losses on Jester ({found[3]}) and" in TRUTH
    assert f"Coat ({found[4]}) are not significant." in TRUTH
    compared = {(n, v): posterior()[4].gain(n, v) for n in SHOWN for v in (False, True)}
    p = dict(zip(compared, corrected([mean.p for mean in compared.values()]), strict=True))
    assert f"(Coat: {true[4]}, p = {short(p['posterior', False], 3)})" in TRUTH
    coat = posterior()[4]
    assert [coat.first(n).scoring for n in ("posterior", "posterior-auto", "infonce")] == [
        "dot",
        "dot",
        "cosine",
    ]
    kinds = [coat.gain(f"{name}-kind") for name in ("posterior", "posterior-auto")]
    assert f"differences are {signed(kinds[0].value)} and {signed(kinds[1].value)}." in TRUTH
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
    assert all(line.methods["bbe"] > line.methods["dedpul"] for line in coat.lines)
    assert f"a BBE of {least:.0f} times the estimate" in PRIOR


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
    assert f"In all {len(random)} cases that were observed at random they are above the truth" in PRIOR
    rest = [line for group in prior() if group.exposure != "random" for line in group.lines]
    above = {name: sum(line.methods[name] >= line.tau for line in rest) for name in ("dedpul", "bbe")}
    counts = f"all {len(random)} cases that were observed at random, and of the other {len(rest)} cases"
    own = f"DEDPUL is in {above['dedpul']} and BBE in {above['bbe']}."
    small = [line for g in groups_of(prior_all(), small=True) for line in g.lines if g.exposure == "random"]
    assert all(line.methods["bbe"] >= line.tau for line in small)
    below = sum(line.methods["dedpul"] >= line.tau for line in small)
    assert f"in small worlds BBE is, and DEDPUL in {below} of {len(small)}." in PRIOR
    assert f"{counts} {own}" in flat(ratio_methods.__doc__)
    assert all(RANDOM in METHODS[name] for name in above)
    worlds = group_of("worlds", "popularity").lines
    for lines, end in ((rest, " cases;"), (worlds, ".")):
        above = {name: sum(line.methods[name] >= line.tau for line in lines) for name in ("dedpul", "bbe")}
        assert f"DEDPUL is in {above['dedpul']} and BBE in {above['bbe']} of {len(lines)}{end}" in PRIOR


def test_prior_warning():
    """Of wrong estimates and of the others, in how many of a hundred something fires."""
    large = [line for group in prior() for line in group.lines]
    small = [line for group in groups_of(prior_all(), small=True) for line in group.lines]
    text = flat(prior_page.WARNING)

    def shares(lines, fires):
        parts = [[fires(line) for line in lines if is_wrong(line) == wrong] for wrong in (True, False)]
        return [f"{100 * sum(part) / len(part):.0f}%" for part in parts]

    def far(line):
        return line.methods["bbe"] >= 5 * line.estimate

    (wrong, other), (small_wrong, small_other) = shares([*large, *small], warned), shares(small, warned)
    assert f"fired in {wrong} of the wrong cases and in {other} of the others" in text
    assert f"a level) in {small_wrong} and {small_other}." in text
    (wrong, other), random = shares(large, far), [line for line in small if line.exposure == "random"]
    assert f"{wrong} of the wrong large cases and in {other} of the others" in text
    assert "observed at random in {} and {}.".format(*shares(random, far)) in text
    held = [[g for g in groups_of(prior_all(), small=True) if g.exposure == e] for e in EXPOSURES]
    shown = [f"{sum(g.n_covered for g in of)} of {sum(len(g.lines) for g in of)}" for of in held]
    assert (
        f"holds the truth in {shown[0]} cases if the pairs were observed at random, in {shown[1]} if" in text
    )


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
    shown = {name: significant_pairs(auto_lines_of(prior_all(), name)) for name in SETUPS}
    apart = {name: ("auto", "tuned") in pairs for name, pairs in shown.items()}
    assert apart == {"ml-100k": False, "ml-1m": True, "gowalla": False}
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
    """The signs of a contestant's differences from others, of the baselines from those that were run."""
    others = [other for other in others or BASELINES if contest().mean(case, ("-", other))]
    return [contest().gap(case, model_key(model), model_key(("-", other))).sign for other in others]


TAILS = ["gowalla-tail", "yelp2018-tail"]
BETTER = ["ml-1m", *TAILS]
EVEN = ["ml-100k", "kuairec", "coat"]


def test_quality_answer_lines():
    lines = contest().lines
    assert checksum(lines.runs, lines.trials, lines.contrasts, lines.parts) == quality_page.ANSWER.checksum
    assert not lines.broken


def test_quality_answer():
    rivals = ("EASE", "iALS", "ChebyCF")
    signs = {c: [family_gap(c, other).sign for other in rivals] for c in contest().cases}
    assert [case for case, found in signs.items() if found == [1, 1, 1]] == BETTER
    assert [case for case, found in signs.items() if found[:2] == [0, 0]] == EVEN
    for case in BETTER:  # EASE with degree exponents is what its family chooses
        assert set(ranked(case, contest().chosen(case))) == {1}
        assert contest().chosen(case, "EASE") == ("-", "ease-powers")
    ease, ials, cheby = (sorted(family_gap(c, other).value for c in BETTER) for other in rivals)
    assert f"by {short(ease[0])} to {short(ease[-1])} over EASE with degree exponents" in QUALITY
    assert f"by {short(ials[0])} to {short(ials[-1])} over iALS" in QUALITY
    assert f"and by {short(cheby[0])} to {short(cheby[-1])} over ChebyCF." in QUALITY
    alone = [case for case in BETTER if set(ranked(case, ("mf", "exact-infonce"))[:3]) != {1}]
    assert alone == ["ml-1m", "gowalla-tail"]
    assert ranked("gowalla-tail", ("mf", "exact-infonce"), "ease-powers") == [0]
    trained = [model for model, _ in contest().models("ml-1m") if model[0] != "-"]
    assert {model[0] for model in trained if set(ranked("ml-1m", model)[:3]) == {1}} == {
        "mf+ease",
        "lightgcn+ease",
    }
    assert ranked("ml-1m", ("mf", "exact-infonce"), "ease-powers") == [-1]
    assert [signs[case][2] for case in EVEN] == [1, 0, 0]
    gap = family_gap("ml-100k", "ChebyCF")
    assert f"on MovieLens-100k it beats ChebyCF by {short(gap.value)}." in QUALITY
    popularity, (_, best) = contest().mean("kuairec", ("-", "popularity")), contest().models("kuairec")[0]
    assert (
        f"popularity alone has {short(popularity.value)}, the best contestant {short(best.value)}." in QUALITY
    )


CHOSEN = {
    "ml-100k": ("lightgcn+ease", "exact-psl"),
    "ml-1m": ("lightgcn+ease", "exact-dpl-hard"),
    "gowalla-tail": ("mf+ease", "exact-infonce-posterior"),
    "yelp2018-tail": ("mf+ease", "exact-bsl"),
}


def test_quality_aims():
    missed = {
        (case, metric): aim - contest().mean(case, contest().chosen(case), metric).value
        for case, aims in AIMS.items()
        for metric, aim in aims.items()
    }
    assert {case: contest().chosen(case) for case in AIMS} == CHOSEN
    met = [place for place, gap in missed.items() if gap <= 0]
    assert met == [(case, metric) for case in TAILS for metric in (RECALL, NDCG)]
    assert "four are met: both on Gowalla and both on Yelp2018, by blends with EASE" in QUALITY
    gaps = {case: short(missed[case, NDCG]) for case in ("ml-1m", "ml-100k")}
    assert f"missed: by {gaps['ml-1m']} on MovieLens-1M" in QUALITY
    assert f"and by {gaps['ml-100k']} on MovieLens-100k" in QUALITY
    above = [m for m, mean in contest().models("ml-100k") if m[0] != "-" and mean.value >= 0.455]
    assert len(above) == 6
    assert "On the test part of MovieLens-100k six contestants are above the aim" in QUALITY
    highest = max(mean.value for _, mean in contest().models("ml-1m"))
    assert f"on that of MovieLens-1M none is, the best has {short(highest)}." in QUALITY


def test_quality_trials():
    lines = contest().lines
    counts = Counter((trial.dataset, trial.encoder, trial.method) for trial in lines.trials)
    sums = {
        case: {
            name: sum(counts[case, *model] for model in of if not model[0].endswith("+ease"))
            for name, of in FAMILIES.items()
        }
        for case in contest().cases
    }
    assert all(n >= found["full-catalogue"] for found in sums.values() for n in found.values())
    assert "On the other cases EASE, iALS and ChebyCF have more trials than the contestants that" in QUALITY
    weights = [sum(n for (c, e, _), n in counts.items() if c == case and e[-5:] == "+ease") for case in TAILS]
    trained, ease = ([sums[case][name] for case in TAILS] for name in ("full-catalogue", "EASE"))
    assert f"train had {trained[0]} and {trained[1]} trials" in QUALITY
    assert f"the weights of blends {weights[0]} and {weights[1]}, " in QUALITY
    assert f"EASE {ease[0]} and {ease[1]}, iALS and ChebyCF 48 each." in QUALITY
    assert {sums[case][name] for case in TAILS for name in ("iALS", "ChebyCF")} == {48}
    late = {e: {n for (c, e2, _), n in counts.items() if e2 == e} for e in ("lightgcn", "lightgcn+ease")}
    assert late["lightgcn"] <= {2, 3, 4}
    assert late["lightgcn+ease"] <= {4, 5, 6, 7, 8}


def test_quality_ials_on_movielens_100k():
    chosen = contest().mean("ml-100k", contest().chosen("ml-100k")).value
    best = ("-", "ials-scaled")
    mean = contest().mean("ml-100k", best)
    p = short(family_gap("ml-100k", "iALS").p, 3)
    assert f"On MovieLens-100k iALS has {short(mean.value)}, and full-catalogue training" in QUALITY
    assert f"chooses {short(chosen)} (p = {p})." in QUALITY
    every = scored_trials(contest().lines)["ml-100k", *best]
    first, rest = ([s for s in every if (s.trial.number < 66) == early] for early in (True, False))
    early = settings_of_trial(choice_of(first).by_mean)
    runs = runs_of(contest().lines)["ml-100k", *best, digest(final_parameters(early))]
    protocol = flat(quality_page._PROTOCOL)
    assert f"among its first 66 trials ({short(mean_of(runs, 'ndcg@20').value)})." in protocol
    assert choice_of(every).by_mean == choice_of(rest).by_mean
    assert "without them the choice is the same." in protocol


def test_quality_what_is_missing():
    seeds = {
        case: {model: mean.n for model, mean in contest().models(case) if model[0] != "-"}
        for case in contest().cases
    }
    assert {n for found in seeds.values() for n in found.values()} == {5}
    assert "All contestants that train have 5 seeds." in flat(quality_page.ANSWER.text)
    losses = {f"exact-{loss}" for loss in ("infonce", "bsl", "psl", "dpl", "dpl-hard", "infonce-posterior")}
    for found in seeds.values():
        assert {(e, m) for e in ("lightgcn", "lightgcn+ease") for m in losses} <= set(found)
    spreads = [contest().side(case, f"family {name}").spread for case in TAILS for name in FAMILIES]
    assert None not in spreads


def test_quality_debiasing():
    text = flat(quality_page.DEBIASING.text)
    assert quality_page.DEBIASING.checksum == quality_page.ANSWER.checksum
    infonce, hard, control, posterior = (
        ("mf", f"exact-{loss}") for loss in ("infonce", "dpl-hard", "dpl-hard-tau0", "infonce-posterior")
    )

    def gaps(a, b, cases=None):
        found = [contest().gap(case, model_key(a), model_key(b)) for case in cases or contest().cases]
        return [gap for gap in found if gap]

    every = {
        (case, a): gap
        for case in contest().cases
        for a, b in debiasing_pairs()
        if b[1] == "exact-infonce" and (gap := contest().gap(case, model_key(a), model_key(b)))
    }
    assert f"Of {len(every)} differences 3 are significant gains" in text
    better = {place: gap.value for place, gap in every.items() if gap.sign > 0}
    assert better.keys() == {
        ("ml-1m", ("lightgcn", posterior[1])),
        *(("gowalla-tail", (encoder, hard[1])) for encoder in ("lightgcn", "lightgcn+ease")),
    }
    assert f"of {short(min(better.values()))} to {short(max(better.values()))}; 21 are" in text
    worse = {place: -gap.value for place, gap in every.items() if gap.sign < 0}
    assert len(worse) == 21
    assert [gap.sign for gap in gaps(hard, control)] == [0, -1]
    assert f"and a significant loss of {short(-gaps(hard, control)[1].value)} on Yelp2018." in text
    (gowalla, _), (gowalla_0, yelp_0) = (gaps(model, infonce, TAILS) for model in (hard, control))
    graph, blend = (better["gowalla-tail", (encoder, hard[1])] for encoder in ("lightgcn", "lightgcn+ease"))
    assert f"on Gowalla with LightGCN, by {short(graph)}, and by {short(blend)} if both" in text
    assert f"With MF it is {short(gowalla.value)} above, and so is the same model with τ = 0" in text
    assert f"without the correction, by {short(gowalla_0.value)}; neither is significant" in text
    assert {gowalla.sign, gowalla_0.sign} == {0}
    of = [worse["yelp2018-tail", (e, hard[1])] for e in ("mf", "lightgcn", "mf+ease", "lightgcn+ease")]
    assert f"worse: by {short(of[0])} with MF, by {short(of[1])} with LightGCN, " in text
    assert f"by {short(of[2])} and {short(of[3])} in their blends with EASE" in text
    assert f"and by {short(-yelp_0.value)} with τ = 0." in text
    assert f"worse with LightGCN, by {short(worse['kuairec', ('lightgcn', hard[1])])}." in text
    assert {case for case, (_, method) in worse if method == hard[1]} == {"yelp2018-tail", "kuairec"}
    equal = [worse[case, ("mf", "exact-dpl")] for case in ("ml-100k", "ml-1m", *TAILS)]
    assert f"by {short(min(equal))} to {short(max(equal))} with MF." in text
    assert not {("kuairec", ("mf", "exact-dpl")), ("coat", ("mf", "exact-dpl"))} & set(worse)
    assert f"MovieLens-1M with LightGCN, by {short(better['ml-1m', ('lightgcn', posterior[1])])}, and" in text
    assert [place for place, gap in every.items() if place[1][1] == posterior[1] and gap.sign] == [
        ("ml-1m", ("lightgcn", posterior[1]))
    ]
    blends = [
        contest().gap(case, model_key(CHOSEN[case]), model_key((CHOSEN[case][0], "exact-infonce")))
        for case in ("ml-1m", "gowalla-tail")
    ]
    assert [gap.sign for gap in blends] == [0, 0]
    assert f"on MovieLens-1M (with LightGCN, {short(blends[0].value)} above the blend of InfoNCE)" in text
    assert f"InfoNCE-posterior on Gowalla ({short(blends[1].value)} above)." in text
    spread = [short(contest().mean(case, infonce).sd) for case in TAILS]
    assert f"the spread over seeds, which is {spread[0]} for InfoNCE." in text
    assert spread[0] == spread[1]


def test_quality_former_protocol():
    text = flat(quality_page._FORMER)
    now, before = (
        [
            short(contest().mean(f"{name}-{kind}", ("mf", "exact-infonce")).value)
            for name in ("gowalla", "yelp2018")
        ]
        for kind in ("tail", "standard")
    )
    assert f"on the test part is {now[0]} in place of {before[0]}." in text
    assert (
        f"On Yelp2018 it is {now[1]} in place of {before[1]}, with 14 trials of InfoNCE in place of 20."
        in text
    )
    counts = Counter((trial.dataset, trial.encoder, trial.method) for trial in contest().lines.trials)
    assert counts["yelp2018-standard", "mf", "exact-infonce"] == 20
    used = chosen_settings(contest().lines)["gowalla-standard", "mf", "exact-infonce"]["parameters"]
    assert f"{used['loss.temperature']:.3f}" == "0.074"


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
    assert others == {"ml-100k": ("lightgcn+ease", "exact-infonce-posterior")}
    protocol = flat(quality_page._PROTOCOL)
    assert "would choose LightGCN with InfoNCE-posterior + EASE on MovieLens-100k." in protocol


def test_quality_table_of_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {
        "the full-catalogue loss that validation chooses¹": None,
        "full-catalogue softmax, blended with EASE": ("mf+ease", "exact-infonce"),
        "full-catalogue softmax": ("mf", "exact-infonce"),
        "EASE with degree exponents": ("-", "ease-powers"),
        "EASE": ("-", "ease"),
        "iALS": ("-", "ials-scaled"),
        "ChebyCF": ("-", "chebycf"),
    }
    for name, asked in rows.items():
        cells = []
        for case, metrics in AIMS.items():
            model = asked or contest().chosen(case)
            if not contest().mean(case, model):
                cells.append("–")
                continue
            cell = " / ".join(short(contest().mean(case, model, metric).value) for metric in metrics)
            is_best = model[0] != "-" and set(ranked(case, model)) == {1}
            cells.append(f"**{cell}**" if is_best else cell)
        assert f"| {name} | {' | '.join(cells)} |" in text
    assert [contest().chosen(case) for case in AIMS] == list(CHOSEN.values())  # the footnote


def test_significance_in_the_readme():
    """The sentences below the first table: signs against EASE, EASE with exponents, iALS and ChebyCF."""
    softmax, blend = ("mf", "exact-infonce"), ("mf+ease", "exact-infonce")
    assert BASELINES == ("ease", "ease-powers", "ials-scaled", "chebycf")
    assert ranked("yelp2018-tail", softmax) == [1, 1, 1, 1]  # "on Yelp2018"
    assert ranked("gowalla-tail", softmax) == [1, 0, 1, 0]  # "EASE without them and iALS on Gowalla"
    assert ranked("gowalla-tail", blend) == [1, 1, 1, 0]  # "all but ChebyCF"
    assert ranked("ml-1m", blend) == [1, 1, 1, 1]  # "blended with EASE it is better than all of these"
    assert ranked("ml-1m", softmax)[1] == -1
    assert ranked("ml-100k", contest().chosen("ml-100k"))[:3] == [0, 0, 0]
    assert ranked("kuairec", softmax)[1] == -1
    assert ranked("kuairec", ("mf", "exact-infonce-dot"))[:3] == [0, 0, 0]
    assert [family_gap(case, other).sign for case in EVEN for other in ("EASE", "iALS")] == [0] * 6
