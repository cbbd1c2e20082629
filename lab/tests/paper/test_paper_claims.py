"""Claims: verdicts on lines that were made to answer yes, no, in part, or not at all."""

import dataclasses

import paper_lines as made
import pytest

from truepair_lab.lines import Lines
from truepair_lab.paper.report.claims import BESIDE, CLAIMS, MARKS, THRESHOLDS, claims_table

FIVE = dict.fromkeys(("bpr", "infonce", "dcl", "hcl"), 0.3)
OVER_USERS = [made.contrast(d, "lightgcn dpl-hard", "ease", -0.01, 0.001) for d in made.DATASETS]
WHOLE = made.whole()
WHOLE = dataclasses.replace(WHOLE, contrasts=[*WHOLE.contrasts, *OVER_USERS])
BY_TEXT = {claim.text: claim for claim in (*CLAIMS, *BESIDE)}


def verdict(words, lines):
    found = [claim for text, claim in BY_TEXT.items() if text.startswith(words)]
    assert len(found) == 1, words
    return found[0].judge(lines)


def paper(levels, datasets=("ml-100k", "ml-1m"), encoders=("mf",)):
    """Lines of the paper's protocol with these levels everywhere."""
    runs = [
        made.runs("paper", d, e, m, level) for d in datasets for e in encoders for m, level in levels.items()
    ]
    return Lines([run for few in runs for run in few])


def test_without_lines_nothing_is_tested():
    assert {claim.judge(Lines()).mark for claim in (*CLAIMS, *BESIDE)} == {"not tested"}


def test_every_verdict_is_one_of_the_marks_and_shows_numbers():
    text = claims_table(WHOLE)
    for claim in (*CLAIMS, *BESIDE):
        found = claim.judge(WHOLE)
        assert found.mark in MARKS[:4], claim.text
        assert " of " in found.numbers
    assert text.count("\n") == len(CLAIMS) + 1


@pytest.mark.parametrize(
    ("words", "yes", "no"),
    [
        ("DPL is the best of the five", FIVE | {"dpl": 0.4}, FIVE | {"dpl": 0.2}),
        ("InfoNCE is at least", {"infonce": 0.3, "bpr": 0.3}, {"infonce": 0.2, "bpr": 0.3}),
        ("DCL is better than BPR", {"dcl": 0.4, "bpr": 0.3}, {"dcl": 0.2, "bpr": 0.3}),
        ("DCL is better than InfoNCE", {"dcl": 0.4, "infonce": 0.3}, {"dcl": 0.2, "infonce": 0.3}),
        ("Debiased losses", {"dcl": 0.4, "bpr": 0.3}, {"dcl": 0.2, "bpr": 0.3}),
        ("HCL is better", {"hcl": 0.4, "dcl": 0.3}, {"hcl": 0.2, "dcl": 0.3}),
        ("DPL is better than BNS", {"dpl": 0.4, "bns": 0.3}, {"dpl": 0.3, "bns": 0.4}),
        ("DPL and BNS are similar", {"dpl": 0.4, "bns": 0.401}, {"dpl": 0.3, "bns": 0.4}),
        ("Hard samples improve", {"dpl-hard": 0.4, "dpl": 0.3}, {"dpl-hard": 0.2, "dpl": 0.3}),
    ],
)
def test_claims_about_the_tables(words, yes, no):
    assert verdict(words, paper(yes)).mark == "holds"
    assert verdict(words, paper(no)).mark == "does not hold here"


def test_not_shown_is_neither_yes_nor_no():
    """Nothing significant: not shown. One significant no beside it: does not hold here."""
    even = [*levels("hcl", 0.4, 0.01, "gowalla"), *levels("dcl", 0.4, 0.01, "gowalla")]
    worse = [*levels("hcl", 0.3, 0.001, "ml-1m"), *levels("dcl", 0.4, 0.001, "ml-1m")]
    assert verdict("HCL is better", Lines(even)).mark == "not shown"
    found = verdict("HCL is better", Lines([*even, *worse]))
    assert (found.mark, found.numbers.split(":")[0]) == ("does not hold here", "0 of 2 (1 not significant)")
    better = [*levels("hcl", 0.5, 0.001, "ml-100k"), *levels("dcl", 0.4, 0.001, "ml-100k")]
    assert verdict("HCL is better", Lines([*even, *worse, *better])).mark == "holds in part"


def test_what_hard_weights_need_of_tau_is_judged_by_the_last_epoch():
    def ablated(raised, none):
        runs = [
            made.runs("ablation", "ml-1m", "mf", "dpl", raised, variant="hard", parameters={"loss.tau": 0.3})
        ]
        runs.append(made.runs("ablation", "ml-1m", "mf", "dpl", none, variant="hard-alone"))
        return Lines([run for few in runs for run in few])

    found = verdict("Hard samples need", ablated(0.4, 0.3))
    assert str(found) == "**holds** (1 of 2 datasets)"
    assert "MovieLens-1M MF soft weights, τ raised to 0.3 - τ = 0: +.1" in found.numbers
    assert verdict("Hard samples need", ablated(0.3, 0.4)).mark == "does not hold here"
    last = [dataclasses.replace(run, last=run.metrics) for run in ablated(0.3, 0.305).runs[:3]]
    later = Lines(
        [*last, *ablated(0.3, 0.305).runs[3:]]
    )  # .005 lower at the best epoch, .005 higher at the last
    assert verdict("Hard samples need", later).mark == "holds"
    top = made.runs("ablation", "ml-1m", "mf", "dpl", 0.3, variant="dns", parameters={"loss.tau": 0.25})
    top += made.runs("ablation", "ml-1m", "mf", "dpl", 0.4, variant="dns-alone")
    both = verdict("Hard samples need", Lines([*ablated(0.4, 0.3).runs, *top]))
    assert (both.mark, both.numbers.split(":")[0]) == ("holds in part", "1 of 2")
    assert "MovieLens-1M MF top N, τ raised to 0.25 - τ = 0: -.1" in both.numbers


def test_a_claim_that_holds_somewhere_holds_in_part():
    good, bad = paper({"hcl": 0.4, "dcl": 0.3}, ("ml-1m",)), paper({"hcl": 0.2, "dcl": 0.3}, ("ml-100k",))
    found = verdict("HCL is better", Lines([*good.runs, *bad.runs]))
    assert found.mark == "holds in part"
    assert found.numbers.startswith("1 of 2:")


def test_what_generally_holds_may_fail_in_few_cases():
    levels = {"dcl": 0.4, "hcl": 0.4, "dpl": 0.4, "bpr": 0.3, "infonce": 0.3}
    lines = [*paper(levels, made.DATASETS[:3]).runs, *paper({"dcl": 0.2, "bpr": 0.3}, ("gowalla",)).runs]
    assert verdict("Debiased losses", Lines(lines)).mark == "holds"


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds_are_no_test(seeds):
    levels = {"hcl": 0.4, "dcl": 0.3, "infonce": 0.4, "bpr": 0.3, "dpl": 0.4, "bns": 0.4}
    runs = [made.runs("paper", "ml-1m", "mf", m, x, seeds=seeds) for m, x in levels.items()]
    lines = Lines([run for few in runs for run in few])
    for words in ("HCL is better", "InfoNCE is at least", "DPL and BNS are similar", "Debiased losses"):
        found = verdict(words, lines)
        assert found.mark == "not tested"
        assert "spread unknown" in found.numbers


def test_dpl_is_the_best_of_five_only_where_five_were_run():
    four = {name: level for name, level in FIVE.items() if name != "dcl"} | {"dpl": 0.4}
    assert verdict("DPL is the best of the five", paper(four)).mark == "not tested"
    both = Lines([*paper(four, ("ml-100k",)).runs, *paper(FIVE | {"dpl": 0.4}, ("ml-1m",)).runs])
    assert str(verdict("DPL is the best of the five", both)) == "**holds** (1 of 5 datasets)"


def test_dpl_must_be_better_than_each_other_loss():
    lines = paper(FIVE | {"dcl": 0.4, "dpl": 0.39}, ("ml-1m",))
    assert verdict("DPL is the best of the five", lines).mark == "does not hold here"


def test_a_verdict_over_fewer_datasets_than_claimed_says_so():
    levels = {"hcl": 0.4, "dcl": 0.3}
    assert verdict("HCL is better", paper(levels)).reach == "2 of 5 datasets"
    assert "**holds** (2 of 5 datasets)" in claims_table(paper(levels))
    everywhere = paper(levels, (*made.DATASETS, "yahoo-r3"))
    assert verdict("HCL is better", everywhere).reach == ""
    one_seed = made.run("paper", "gowalla", "mf", "hcl", 0.4), made.run("paper", "gowalla", "mf", "dcl", 0.3)
    lines = Lines([*paper(levels).runs, *one_seed])  # what is not tested is no dataset of the verdict
    assert verdict("HCL is better", lines).reach == "2 of 5 datasets"


def levels(method, value, noise, dataset="ml-1m"):
    """Three runs whose spread is known, evenly around a value."""
    return [
        dataclasses.replace(run, metrics=dict.fromkeys(run.metrics, value + step * noise))
        for run, step in zip(made.runs("paper", dataset, "mf", method, value), (-1, 0, 1), strict=True)
    ]


@pytest.mark.parametrize(
    ("words", "a", "b"),
    [("InfoNCE is at least", "infonce", "bpr"), ("DPL and BNS are similar", "dpl", "bns")],
)
def test_no_difference_found_is_not_yet_alike(words, a, b):
    def mark(value, noise):
        return verdict(words, Lines([*levels(a, value, noise), *levels(b, 0.4, noise)])).mark

    assert mark(0.4, 0.0001) == "holds"
    assert mark(0.399, 0.0001) == "holds"  # surely lower, by less than 1%
    assert mark(0.4, 0.05) == "not shown"  # no difference found, and nothing sure
    assert mark(0.39, 0.0001) == "does not hold here"


def test_more_than_similar_is_still_at_least_as_good():
    lines = Lines([*levels("infonce", 0.5, 0.001), *levels("bpr", 0.4, 0.001)])
    assert verdict("InfoNCE is at least", lines).mark == "holds"
    lines = Lines([*levels("dpl", 0.5, 0.001), *levels("bns", 0.4, 0.001)])
    assert verdict("DPL and BNS are similar", lines).mark == "does not hold here"


def test_p_values_are_corrected_over_the_cases_of_a_claim():
    """One case alone is sure; beside others that say nothing it is not."""
    sure = [*levels("hcl", 0.4275, 0.01, "ml-1m"), *levels("dcl", 0.4, 0.01, "ml-1m")]
    even = [*levels("hcl", 0.4, 0.01, "gowalla"), *levels("dcl", 0.4, 0.01, "gowalla")]
    assert verdict("HCL is better", Lines(sure)).mark == "holds"
    found = verdict("HCL is better", Lines([*sure, *even]))
    assert found.mark == "not shown"
    assert found.numbers.startswith("0 of 2 (2 not significant):")


def test_gains_on_sparse_data_are_compared_as_shares():
    dense = paper({"infonce": 0.31, "bpr": 0.30}, ("ml-1m",)).runs
    more, less = (paper({"infonce": x, "bpr": 0.10}, ("gowalla",)).runs for x in (0.12, 0.1005))
    assert verdict("InfoNCE gains more", Lines([*dense, *more])).mark == "holds"
    assert verdict("InfoNCE gains more", Lines([*dense, *less])).mark == "does not hold here"
    assert verdict("InfoNCE gains more", Lines(dense)).mark == "not tested"


def test_the_encoders_are_compared_on_dpl():
    graph = paper({"dpl": 0.35}, encoders=("lightgcn",)).runs
    same, higher = (paper({"dpl": level}).runs for level in (0.35, 0.36))
    assert verdict("With LightGCN", Lines([*graph, *same])).mark == "holds"
    assert verdict("With LightGCN", Lines([*graph, *higher])).mark == "does not hold here"
    assert verdict("With LightGCN", WHOLE).mark == "holds"


SWEPT = ("A larger M", "The step from M", "A larger N helps MF", "A larger N hurts LightGCN", "Over τ")


@pytest.mark.parametrize("words", SWEPT)
def test_claims_about_sweeps(words):
    turned = [_turned(run) for run in made.sweep(tau=(0.33, 0.30, 0.33))]
    assert verdict(words, Lines(made.sweep())).mark == "holds"
    assert verdict(words, Lines(turned)).mark == "does not hold here"


def _turned(run):
    """The same run with better and worse exchanged, except for τ, whose curve is made for it."""
    if run.variant.startswith("tau"):
        return run
    return dataclasses.replace(run, metrics={name: 1 - value for name, value in run.metrics.items()})


def test_a_first_step_that_is_not_the_largest_does_not_count():
    levels = {0: 0.30, 1: 0.31, 5: 0.35}
    lines = [made.runs("sweep", "ml-1m", "mf", "dpl", x, variant=f"M={m}") for m, x in levels.items()]
    assert verdict("The step from M", Lines([r for few in lines for r in few])).mark == "does not hold here"


def test_a_best_tau_at_the_edge_is_no_inverted_u():
    assert verdict("Over τ", Lines(made.sweep(tau=(0.30, 0.31, 0.33)))).mark == "does not hold here"


@pytest.mark.parametrize(("words", "ratio"), [("An epoch of DPL", 1.5), ("An epoch of BNS", 2.0)])
def test_claims_about_time(words, ratio):
    other = [dataclasses.replace(t, ratio=ratio) for t in WHOLE.timings]
    assert verdict(words, WHOLE).mark == "holds"
    assert verdict(words, Lines(timings=other)).mark == "does not hold here"


def test_the_questions_beside_the_paper_follow_the_comparisons_over_users():
    assert verdict("With equal tuning, DPL is better", WHOLE).mark == "holds"
    unsure = [
        made.contrast(d, f"{e} dpl", f"{e} bpr", 0.01, 0.3) for d in made.DATASETS for e in ("mf", "lightgcn")
    ]
    assert (
        verdict("With equal tuning, DPL is better", dataclasses.replace(WHOLE, contrasts=unsure)).mark
        == "not shown"
    )
    assert verdict("The best sampled model", WHOLE).mark == "does not hold here"
    strong = [made.contrast(d, "lightgcn dpl-hard", "ease", 0.01, 0.001) for d in made.DATASETS]
    assert verdict("The best sampled model", dataclasses.replace(WHOLE, contrasts=strong)).mark == "holds"


def test_a_reference_point_is_only_compared_over_users():
    lines = dataclasses.replace(WHOLE, contrasts=[])
    found = verdict("The best sampled model", lines)
    assert found.mark == "not tested"
    assert "spread unknown" in found.numbers


def test_the_thresholds_are_told():
    for words in ("Welch's t", "Holm", "0.05", "fewer than 3 seeds", "within ±1%", "above −1%"):
        assert words in THRESHOLDS


def test_comparisons_over_users_are_not_corrected_twice():
    """Their p is corrected over their dataset; 8 cases of p = .007 stay significant."""
    places = [(d, e) for d in made.DATASETS for e in ("mf", "lightgcn")]
    contrasts = [made.contrast(d, f"{e} dpl", f"{e} bpr", 0.01, 0.007) for d, e in places]
    found = verdict("With equal tuning, DPL is better", dataclasses.replace(WHOLE, contrasts=contrasts))
    assert found.mark == "holds"
    assert found.numbers.startswith("8 of 8:")
