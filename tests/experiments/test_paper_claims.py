"""Claims: verdicts on lines that were made to answer yes, no, in part, or not at all."""

import dataclasses

import paper_lines as made
import pytest

from truepair.experiments.lines import Lines
from truepair.experiments.paper.claims import CLAIMS, MARKS, OURS, THRESHOLDS, claims_table
from truepair.experiments.paper.findings import advice, findings

WHOLE = made.whole()
BY_TEXT = {claim.text: claim for claim in (*CLAIMS, *OURS)}


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
    assert {claim.judge(Lines()).mark for claim in (*CLAIMS, *OURS)} == {"not tested"}


def test_every_verdict_is_one_of_the_marks_and_shows_numbers():
    text = claims_table(WHOLE)
    for claim in (*CLAIMS, *OURS):
        found = claim.judge(WHOLE)
        assert found.mark in MARKS[:3], claim.text
        assert " of " in found.numbers
    assert text.count("\n") == len(CLAIMS) + 1


@pytest.mark.parametrize(
    ("words", "yes", "no"),
    [
        ("DPL is the best of the five", {"dpl": 0.4, "hcl": 0.3}, {"dpl": 0.3, "hcl": 0.3}),
        ("InfoNCE is at least", {"infonce": 0.3, "bpr": 0.3}, {"infonce": 0.2, "bpr": 0.3}),
        ("DCL is better than BPR", {"dcl": 0.4, "bpr": 0.3}, {"dcl": 0.2, "bpr": 0.3}),
        ("DCL is better than InfoNCE", {"dcl": 0.4, "infonce": 0.3}, {"dcl": 0.3, "infonce": 0.3}),
        ("Debiased losses", {"dcl": 0.4, "bpr": 0.3}, {"dcl": 0.2, "bpr": 0.3}),
        ("HCL is better", {"hcl": 0.4, "dcl": 0.3}, {"hcl": 0.2, "dcl": 0.3}),
        ("DPL is better than BNS", {"dpl": 0.4, "bns": 0.3}, {"dpl": 0.3, "bns": 0.4}),
        ("DPL and BNS are similar", {"dpl": 0.4, "bns": 0.401}, {"dpl": 0.3, "bns": 0.4}),
        ("Hard samples", {"dpl-hard": 0.4, "dpl": 0.3}, {"dpl-hard": 0.2, "dpl": 0.3}),
    ],
)
def test_claims_about_the_tables(words, yes, no):
    assert verdict(words, paper(yes)).mark == "holds"
    assert verdict(words, paper(no)).mark == "does not hold here"


def test_a_claim_that_holds_somewhere_holds_in_part():
    good, bad = paper({"hcl": 0.4, "dcl": 0.3}, ("ml-1m",)), paper({"hcl": 0.2, "dcl": 0.3}, ("ml-100k",))
    found = verdict("HCL is better", Lines([*good.runs, *bad.runs]))
    assert found.mark == "holds in part"
    assert found.numbers.startswith("1 of 2:")


def test_what_generally_holds_may_fail_in_few_cases():
    levels = {"dcl": 0.4, "hcl": 0.4, "dpl": 0.4, "bpr": 0.3, "infonce": 0.3}
    lines = [*paper(levels, made.DATASETS[:3]).runs, *paper({"dcl": 0.2, "bpr": 0.3}, ("gowalla",)).runs]
    assert verdict("Debiased losses", Lines(lines)).mark == "holds"


def test_one_seed_alone_decides_nothing():
    lines = Lines([made.run("paper", "ml-1m", "mf", m, x) for m, x in (("hcl", 0.4), ("dcl", 0.3))])
    assert verdict("HCL is better", lines).mark == "does not hold here"


def test_gains_on_sparse_data_are_compared_as_shares():
    dense = paper({"infonce": 0.31, "bpr": 0.30}, ("ml-1m",)).runs
    more, less = (paper({"infonce": x, "bpr": 0.10}, ("gowalla",)).runs for x in (0.12, 0.1005))
    assert verdict("InfoNCE gains more", Lines([*dense, *more])).mark == "holds"
    assert verdict("InfoNCE gains more", Lines([*dense, *less])).mark == "does not hold here"
    assert verdict("InfoNCE gains more", Lines(dense)).mark == "not tested"


def test_the_encoders_are_compared_on_dpl():
    lines = WHOLE.runs
    worse = [
        dataclasses.replace(r, encoder={"mf": "lightgcn", "lightgcn": "mf"}[r.encoder])
        for r in lines
        if r.study == "paper"
    ]
    assert verdict("With LightGCN", Lines(lines)).mark == "holds"
    assert verdict("With LightGCN", Lines(worse)).mark == "does not hold here"


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


def test_our_own_questions_follow_the_comparisons_over_users():
    assert verdict("Tuned alike, DPL is better", WHOLE).mark == "holds"
    unsure = [
        made.contrast(d, f"{e} dpl", f"{e} bpr", 0.01, 0.3) for d in made.DATASETS for e in ("mf", "lightgcn")
    ]
    assert (
        verdict("Tuned alike, DPL is better", dataclasses.replace(WHOLE, contrasts=unsure)).mark
        == "does not hold here"
    )
    assert verdict("The best model trained", WHOLE).mark == "does not hold here"
    strong = [made.contrast(d, "lightgcn dpl-hard", "ease", 0.01, 0.001) for d in made.DATASETS]
    assert verdict("The best model trained", dataclasses.replace(WHOLE, contrasts=strong)).mark == "holds"


def test_the_thresholds_are_told():
    assert "2 standard errors" in THRESHOLDS
    assert "0.05" in THRESHOLDS


# --- findings ------------------------------------------------------------------------------------------


def test_findings_come_from_the_lines():
    text = "\n".join(findings(WHOLE))
    assert "8 of 8 are reached" in text
    assert "better in 8 of 8 cases and worse in 0" in text
    assert "is beaten on MovieLens-100k, MovieLens-1M, Yelp2018, Gowalla" in text
    assert "replacing the positive-positive term by ½ -.01" in text
    few = findings(Lines(timings=WHOLE.timings))
    assert len(few) == 1  # only the claims' tally


def test_advice_names_the_best_and_what_is_as_good():
    like = {text.split("(")[0].strip(): text for text in advice(WHOLE)}
    assert len(like) == 4
    assert "**EASE**" in like["Data like MovieLens-1M"]
    assert "LightGCN DPL, hard samples" in like["Data like MovieLens-1M"]
    even = [made.contrast("ml-1m", "ials", "ease", -0.001, 0.6)]
    told = advice(dataclasses.replace(WHOLE, contrasts=even))[1]
    assert "Not surely worse: iALS." in told
    assert advice(Lines()) == []
