"""Tables of the report: exactly the means of the lines, the paper's beside them, and what was not run."""

import csv
import dataclasses
import json
import statistics

import paper_lines as made
import pytest

from truepair_lab import searching
from truepair_lab.lines import Lines
from truepair_lab.markdown import metric_name, short, table
from truepair_lab.paper.presets import DATA, METRICS, causes
from truepair_lab.paper.report.ablation import Part, ablation_tables, differences
from truepair_lab.paper.report.bars import AUTHORS, bars_table, reached
from truepair_lab.paper.report.causes import CHANGES, causes_table
from truepair_lab.paper.report.clean_protocol import clean_tables, ranking_table, rankings
from truepair_lab.paper.report.csv_tables import csv_tables
from truepair_lab.paper.report.running_time import data_table, session_table, timing_table, versions_text
from truepair_lab.paper.report.study_runs import OTHER_TEXT, study_of, swept
from truepair_lab.paper.report.tables import reproduction, tuned_table
from truepair_lab.paper.report.tuning_effort import effort_text, searches
from truepair_lab.paper.running.plan import optimistic, settled
from truepair_lab.statistics import Mean

WHOLE = made.whole(("ml-100k", "ml-1m"))


def rows_of(markdown, *words):
    """The rows that hold all these words, as lists of cells."""
    rows = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("|")]
    return [row for row in rows if all(word in row for word in words)]


def cells(lines, file, **place):
    """The rows of a CSV file beside the page, as dicts, that have these values."""
    rows = csv.DictReader(csv_tables(lines)[f"paper-{file}.csv"].splitlines())
    return [row for row in rows if all(row[name] == value for name, value in place.items())]


def shown(values):
    return f"{short(statistics.fmean(values))} ± {short(statistics.stdev(values))}"


# --- cells ---------------------------------------------------------------------------------------------


def test_a_mean_is_over_seeds_and_a_lone_run_has_no_spread():
    lone = made.run("paper", "ml-1m", "mf", "bpr", 0.3)
    many = made.runs("paper", "ml-1m", "mf", "dpl", 0.35)
    study = study_of(Lines([lone, *many]), "paper")
    values = [run.metrics["ndcg@20"] for run in many]
    assert study.mean("ml-1m", "mf", "dpl") == Mean(statistics.fmean(values), statistics.stdev(values), 3)
    assert study.mean("ml-1m", "mf", "bpr").sd is None
    assert "±" not in str(study.mean("ml-1m", "mf", "bpr"))
    assert study.mean("ml-1m", "mf", "hcl") is None


@pytest.mark.parametrize("method", ["ease", "ials"])
def test_the_spread_of_a_reference_point_that_was_solved_once_is_not_known(method):
    study = study_of(Lines([made.run("clean", "ml-1m", "-", method, 0.4)]), "clean")
    assert study.mean("ml-1m", "-", method).error is None


def test_runs_of_other_settings_or_splits_are_left_out_and_counted():
    many = made.runs("paper", "ml-1m", "mf", "dpl", 0.30)
    better = made.run("paper", "ml-1m", "mf", "dpl", 0.9, parameters={"loss": "other"})
    elsewhere = made.run("paper", "ml-1m", "mf", "dpl", 0.9, split="another")
    seeded = made.run("paper", "ml-1m", "mf", "dpl", 0.30, 7, parameters=many[0].parameters | {"seed": 7})
    cell = study_of(Lines([better, elsewhere, *many, seeded]), "paper").cells["ml-1m", "mf", "dpl", ""]
    assert [run.seed for run in cell.runs] == [0, 1, 2, 7]
    assert cell.left_out == 2


BEST = {"loss": "dpl", "patience": 15, "validate_every": 5, "epochs": 60}


@pytest.mark.parametrize(("study", "made_of"), [("clean", settled), ("paper-tuned", optimistic)])
def test_of_several_settings_the_best_trials_is_shown(study, made_of):
    trial = dataclasses.replace(WHOLE.trials[0], dataset="ml-1m", parameters=BEST, score=0.9, epoch=40)
    wanted = made_of({"parameters": BEST, "epoch": 40})
    best = made.run(study, "ml-1m", "mf", "dpl", 0.30, parameters=wanted)
    others = made.runs(study, "ml-1m", "mf", "dpl", 0.40)
    cell = study_of(Lines([*others, best], [trial]), study).cells["ml-1m", "mf", "dpl", ""]
    assert (list(cell.runs), cell.left_out, cell.other) == ([best], 3, False)
    cell = study_of(Lines(others, [trial]), study).cells["ml-1m", "mf", "dpl", ""]
    assert (len(cell.runs), cell.other) == (3, True)
    assert not study_of(Lines(others), study).cells["ml-1m", "mf", "dpl", ""].other


def test_other_settings_than_the_best_trials_are_marked():
    trial = dataclasses.replace(WHOLE.trials[0], parameters=BEST)  # of MovieLens-100k
    lines = dataclasses.replace(WHOLE, trials=[trial])
    for text in (clean_tables(lines), tuned_table(lines), bars_table(lines)):
        assert OTHER_TEXT in text
        assert OTHER_TEXT not in text.replace("‡ other", "")
        assert text.count(" ‡ |") >= 1
    assert "‡" not in clean_tables(WHOLE) + tuned_table(WHOLE) + bars_table(WHOLE)


def test_the_points_of_a_sweep_are_in_rising_order():
    points = swept(study_of(WHOLE, "sweep"), "M", "mf", "precision@5")
    assert [x for x, _ in points] == [0, 1, 5, 10]
    named = Lines(made.runs("sweep", "ml-1m", "mf", "dpl", 0.3, variant="M=all"))
    assert swept(study_of(named, "sweep"), "M", "mf", "precision@5") == []


def test_an_upright_stroke_in_a_cell_is_escaped():
    assert table(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"


# --- the paper's tables --------------------------------------------------------------------------------


def test_every_cell_of_the_papers_tables_is_the_mean_of_its_lines():
    text = reproduction(WHOLE)
    runs = [
        r for r in WHOLE.runs if (r.study, r.dataset, r.encoder, r.method) == ("paper", "ml-1m", "mf", "dpl")
    ]
    (brief,) = rows_of(text.split("#### MovieLens-1M")[1].split("####")[0], "MF", "DPL")
    assert brief[2] == "3"
    assert brief[3] == f"{shown([r.metrics['ndcg@20'] for r in runs])} (.3891)"
    assert brief[-1] == shown([r.last["ndcg@20"] for r in runs])
    (full,) = cells(WHOLE, "metrics", study="paper", dataset="MovieLens-1M", model="MF DPL")
    for metric in METRICS:
        name, values = metric_name(metric), [r.metrics[metric] for r in runs]
        found = [float(full[part]) for part in (name, f"{name}, sd")]
        assert found == pytest.approx([statistics.fmean(values), statistics.stdev(values)], rel=1e-5)
    assert (full["NDCG@20, the paper"], full["rows at the floor"]) == ("0.3891", "0.02")


def test_doubted_cells_are_marked_and_explained_and_the_caption_says_optimistic():
    text = reproduction(WHOLE)
    assert "less than half of NDCG@5" in text
    assert "(.1417†)" in reproduction(Lines(made.runs("paper", "yahoo-r3", "lightgcn", "dcl", 0.2)))
    assert text.startswith("Optimistic: the best test epoch")
    (cell,) = cells(WHOLE, "metrics", study="paper", dataset="MovieLens-1M", model="LightGCN DPL")
    assert (cell["NDCG@10, the paper"], cell["doubted in the paper"]) == ("0.1866", "NDCG@10")
    (other,) = cells(WHOLE, "metrics", study="paper", dataset="MovieLens-1M", model="LightGCN BPR")
    assert other["doubted in the paper"] == ""


def test_what_was_not_run_says_so():
    lines = Lines(made.runs("paper", "ml-1m", "mf", "dpl", 0.35))
    text = reproduction(lines)
    assert rows_of(text, "LightGCN", "BPR")[0][2:4] == ["not run", "not run (.3172)"]
    assert "Not run: MovieLens-100k." in text
    assert "`truepair-lab paper run`" in text
    assert "Yahoo! R3 was not run" in text
    run = Lines(made.runs("paper", "yahoo-r3", "mf", "dpl", 0.2))
    assert "Yahoo! R3 was not run" not in reproduction(run)
    assert "#### Yahoo! R3" in reproduction(run)


def test_reference_points_by_the_clean_protocol_stand_under_optimistic_tables():
    found = {m: made.run("clean", "ml-1m", "-", m, level).metrics for m, level in made.REFERENCES.items()}
    keys = ("ndcg@20", "recall@20", "precision@5")
    ease = "EASE " + " / ".join(short(found["ease"][key]) for key in keys)
    told = reproduction(WHOLE).split("#### MovieLens-1M")[1]
    for text in (told, tuned_table(WHOLE)):
        line = next(x for x in text.splitlines() if x.startswith("Reference points by the clean protocol"))
        assert ease in line
        assert "not optimistic" in line
        assert all(name in line for name in ("Popularity", "ItemKNN", "iALS"))
    assert "Reference points" not in tuned_table(Lines(made.runs("paper-tuned", "ml-1m", "mf", "dpl", 0.4)))


def test_bars_are_met_or_not():
    low = made.runs("paper", "gowalla", "mf", "dpl", 0.10)
    high = made.runs("paper-tuned", "gowalla", "mf", "dpl-hard", 0.14)
    by_place = {(r.dataset, r.encoder): r for r in reached(Lines([*low, *high]))}
    bar = by_place["gowalla", "mf"]
    assert bar.met()
    assert bar.met(AUTHORS) is False
    assert bar.best(AUTHORS) < bar.bar < bar.best()
    assert by_place["gowalla", "lightgcn"].met() is None
    row = rows_of(bars_table(Lines(low)), "Gowalla", "MF")[0]
    assert row[-1] == "**no**"
    assert row[4:7] == ["not run"] * 3


def test_hard_samples_count_for_some_datasets_and_are_shown_for_all():
    for dataset, met in (("ml-100k", False), ("ml-1m", False), ("gowalla", True), ("yelp2018", True)):
        plain = made.runs("paper", dataset, "mf", "dpl", 0.01)
        hard = made.runs("paper", dataset, "mf", "dpl-hard", 0.5)
        found = next(r for r in reached(Lines([*plain, *hard])) if (r.dataset, r.encoder) == (dataset, "mf"))
        assert found.met() is met
        row = next(x for x in rows_of(bars_table(Lines([*plain, *hard])), "MF") if x[3] != "not run")
        assert [cell[:3] for cell in row[3:5]] == [".01", ".50"]


def test_each_encoder_has_its_own_bar():
    lines = Lines(made.runs("paper", "ml-1m", "lightgcn", "dpl", 0.5))
    assert [(r.encoder, r.met()) for r in reached(lines) if r.dataset == "ml-1m"] == [
        ("mf", None),
        ("lightgcn", True),
    ]


def test_tuned_runs_are_shown_with_their_variant():
    lines = Lines(made.runs("paper-tuned", "ml-1m", "mf", "dpl", 0.4, variant="d = 64"))
    assert rows_of(tuned_table(lines), "MF DPL (d = 64)")[0][2] == "3"
    assert "`truepair-lab paper run`" in tuned_table(Lines())


# --- clean ---------------------------------------------------------------------------------------------


def test_the_best_stands_first_and_in_bold():
    text = clean_tables(WHOLE)
    first = rows_of(text, "**EASE**")[0]
    assert first[0] == "1"
    for metric in map(metric_name, METRICS):
        clean = cells(WHOLE, "metrics", study="clean", dataset="MovieLens-1M")
        assert max(clean, key=lambda row: float(row[metric]))["model"] == "EASE"


def test_comparisons_over_users_are_shown_and_turned_round():
    ranking = rankings(WHOLE)["ml-1m"]
    told, turned = (
        ranking.gap(*pair) for pair in ((("mf", "dpl"), ("-", "ease")), (("-", "ease"), ("mf", "dpl")))
    )
    assert told.text == "-.0200 [-.0300, -.0100], p < .001"
    assert turned.text == "+.0200 [+.0100, +.0300], p < .001"
    assert (told.sign, turned.sign) == (-1, 1)
    assert told.text in ranking_table(ranking)
    assert "seeds alone" in ranking.gap(("mf", "hcl"), ("mf", "bpr")).text
    assert ranking.gap(("mf", "hcl"), ("mf", "no such")) is None


def test_comparisons_of_another_split_do_not_count():
    other = [dataclasses.replace(line, split="another") for line in WHOLE.contrasts]
    ranking = rankings(dataclasses.replace(WHOLE, contrasts=other))["ml-1m"]
    assert ranking.contrasts == ()


@pytest.mark.parametrize("side", ["a_digest", "b_digest"])
def test_comparisons_of_other_settings_than_those_shown_do_not_count(side):
    other = [dataclasses.replace(line, **{side: "another"}) for line in WHOLE.contrasts]
    ranking = rankings(dataclasses.replace(WHOLE, contrasts=other))["ml-1m"]
    assert ranking.contrasts == ()
    gap = ranking.gap(("mf", "dpl"), ("-", "ease"))
    assert gap.sign is None
    assert gap.text.endswith("(spread unknown)")


def test_clean_rows_that_were_not_run_say_so():
    text = clean_tables(Lines(made.runs("clean", "ml-1m", "mf", "dpl", 0.35)))
    assert not rows_of(text, "EASE")
    assert "LightGCN HCL, " in text.split("#### MovieLens-1M")[1].split("Not run:")[1]
    assert "a reference point (none run)" in text


# --- ablation, effort, time ----------------------------------------------------------------------------


def test_the_ablation_is_judged_after_the_last_epoch():
    text = ablation_tables(WHOLE)
    runs = {
        v: [r for r in WHOLE.runs if (r.study, r.dataset, r.variant) == ("ablation", "ml-1m", v)]
        for v in ("dpl", "half")
    }
    last = {v: [r.last["ndcg@20"] for r in found] for v, found in runs.items()}
    row = rows_of(text.split("#### MovieLens-1M")[1], "`half`")[0]
    assert row[2] == shown(last["half"])
    assert row[3].startswith("**" + short(statistics.fmean(last["half"]) - statistics.fmean(last["dpl"])))
    assert row[4] == shown([r.metrics["ndcg@20"] for r in runs["half"]])
    assert row[5] == "2.0%"
    assert rows_of(text, "`bpr-matched`")[0][2] == "not run"
    assert "Not run" in ablation_tables(Lines())


def test_hard_weights_are_said_to_come_with_another_tau():
    few = made.runs("ablation", "ml-1m", "mf", "dpl", 0.3, variant="hard", parameters={"loss.tau": 0.25})
    assert rows_of(ablation_tables(Lines(few)), "`hard`")[0][1] == "hard weights with τ raised to 0.25"
    assert rows_of(ablation_tables(WHOLE), "`hard`")[0][1] == "hard weights with τ raised"


def test_causes_stand_beside_the_papers_figure():
    found = made.runs("paper", "gowalla", "mf", "dpl", 0.10, seeds=2)
    found += made.runs("causes", "gowalla", "mf", "dpl", 0.134, seeds=1, variant="decay=1e-07", noise=0)
    text = causes_table(Lines(found))
    base, changed = rows_of(text, "MF DPL")
    assert base[2] == shown([run.metrics["ndcg@20"] for run in found[:2]])
    assert changed[1:] == ["weight decay 1e-7", ".1420", f"{0.142 / 0.1340 - 1:+.1%}", "not run", "–"]
    assert "Not run" in causes_table(Lines(found[:2]))
    assert {variant for _, _, variant, _ in causes(DATA["gowalla"])} == {*CHANGES} - {""}


def test_effort_counts_trials_and_shows_what_was_chosen():
    (row,) = (row for row in searches(WHOLE) if row[0] == "MovieLens-1M")
    assert row == [
        "MovieLens-1M", "MF DPL", 3, 1, 1, "–", ".2000", "40", "dim 32, learning_rate 0.001",
        "learning_rate 0.001 (edge), dim 32 (edge)", "3.0 min",
    ]  # fmt: skip
    (written,) = cells(WHOLE, "searches", dataset="MovieLens-1M")
    assert list(written.values()) == list(map(str, row))
    failed = [dataclasses.replace(t, state="failed", score=None) for t in WHOLE.trials]
    assert [row[6] for row in searches(Lines(trials=failed))] == ["–", "–"]


def tried(encoder, method, *settings, epoch=40):
    """Complete trials of these settings, the first the best: what is extended, and what lies at an end."""
    like = dataclasses.replace(WHOLE.trials[0], encoder=encoder, method=method, epoch=epoch)
    trials = [
        dataclasses.replace(like, number=n, score=0.3 - n / 100, parameters=p) for n, p in enumerate(settings)
    ]
    (row,) = searches(Lines(trials=trials))
    return row[5], row[9]


def test_the_best_parameters_at_a_cap_or_an_edge_are_named():
    capped = {"encoder.dim": 128, "n_unlabelled": 32, "n_extra": 16, "learning_rate": 0.005}
    assert tried("mf", "dpl", capped) == ("–", "dim 128 (cap), n_unlabelled 32 (cap), n_extra 16 (cap)")
    assert tried("mf", "dpl", {"n_extra": 1, "encoder.dim": 64}) == ("–", "n_extra 1 (least)")
    assert tried("lightgcn", "bpr", {"encoder.dim": 64, "encoder.hops": 3})[1] == "dim 64 (cap), hops 3 (cap)"
    assert tried("lightgcn", "bpr", {"encoder.hops": 2, "encoder.scoring": "dot"}) == ("–", "–")
    assert tried("mf", "bpr", {"epochs": 60}, epoch=60)[1] == "epoch 60 (the last)"
    assert tried("mf", "new", {"encoder.dim": 128}) == ("–", "–")  # a method of one's own


def test_what_was_tried_beyond_its_first_range_is_extended_and_no_edge():
    at_edge, beyond = {"learning_rate": 0.001}, {"learning_rate": 0.0003}
    assert tried("mf", "bpr", at_edge) == ("–", "learning_rate 0.001 (edge)")
    assert tried("mf", "bpr", at_edge, beyond) == ("learning_rate", "–")
    assert tried("mf", "bpr", beyond, at_edge) == ("learning_rate", "learning_rate 0.0003 (edge)")


def test_the_caption_of_effort_tells_the_caps_and_the_trials():
    text = effort_text(WHOLE)
    assert "the dimension ends at 128 with MF and 64 with LightGCN" in text
    assert "N at 32, M at 16" in text
    assert f"{searching.ONE_PARAMETER} for EASE, which has one parameter; popularity has none" in text


def test_times_sessions_data_and_versions():
    assert rows_of(timing_table(WHOLE), "MovieLens-1M", "MF BNS", "NVIDIA H200")[0][-2:] == ["0.4", "4.00"]
    assert rows_of(session_table(WHOLE), "CPU, 2 threads", "2.0 h")[0] == [
        "CPU, 2 threads",
        "1",
        "12",
        "2.0 h",
    ]
    assert "sweep 60" in rows_of(data_table(WHOLE), "`split-of-ml-1m`")[0][-1]
    assert "truepair 0.1.0" in versions_text(WHOLE)
    assert "torch" not in versions_text(WHOLE)
    (cell,) = cells(WHOLE, "settings", study="clean", dataset="MovieLens-1M", model="MF HCL")
    assert json.loads(cell["parameters"]) == made.setting("hcl")


def test_table_i_stands_beside_our_counts():
    text = data_table(Lines([made.run("paper", d, "mf", "dpl", 0.3) for d in ("ml-1m", "gowalla", "mine")]))
    assert rows_of(text, "MovieLens-1M")[0][1:5] == [
        "6,040",
        "3,706 (3,952)",
        "1,000,209 (1,000,000)",
        ".0447 (.0419)",
    ]
    assert rows_of(text, "Gowalla")[0][1:5] == ["29,858", "40,981", "1,027,370", ".00084"]
    assert rows_of(text, "mine")[0][1:5] == ["–"] * 4


def test_cells_with_few_seeds_are_listed():
    few = made.runs("paper", "ml-1m", "mf", "hcl", 0.3, seeds=2)
    text = reproduction(Lines([*few, *made.runs("paper", "ml-1m", "mf", "dpl", 0.3)]))
    assert "1 of the 50 cells of Table II have fewer than 3 seeds" in text
    assert "not known: MovieLens-1M MF HCL (2)." in text
    assert "cells of Table II" not in reproduction(Lines(made.runs("paper", "ml-1m", "mf", "dpl", 0.3)))


def test_differences_of_the_ablation_are_corrected_together():
    """τ = 0 alone differs significantly from DPL; beside five variants that differ by chance it does not."""

    def part(name, value, noise):
        return Part(name, Mean(value, noise, 3), None, None)

    base, one = part("dpl", 0.4, 0.001), part("tau=0", 0.403, 0.001)
    others = {
        name: part(name, 0.4, 0.01) for name in ("half", "n-alone", "hard", "hard-alone", "bpr-matched")
    }
    assert differences({"dpl": base, "tau=0": one})["tau=0"][1] == 1
    assert differences({"dpl": base, "tau=0": one, **others})["tau=0"][1] == 0


@pytest.mark.parametrize("make", [effort_text, timing_table, session_table, data_table])
def test_without_lines_a_table_says_so(make):
    assert "Not run" in make(Lines())
