"""Tables of the report: exactly the means of the lines, the paper's beside them, and what was not run."""

import dataclasses
import statistics

import paper_lines as made
import pytest

from truepair.experiments.lines import Lines
from truepair.experiments.paper.ablation import ablation_tables
from truepair.experiments.paper.cells import Difference, Mean, difference, study_of, swept
from truepair.experiments.paper.clean import clean_tables, ranking_table, rankings
from truepair.experiments.paper.published import METRICS
from truepair.experiments.paper.tables import bars_table, reached, reproduction, tuned_table
from truepair.experiments.paper.words import short, table
from truepair.experiments.paper.work import (
    data_table,
    effort_table,
    session_table,
    settings_table,
    timing_table,
    versions_text,
)

WHOLE = made.whole(("ml-100k", "ml-1m"))


def rows_of(markdown, *words):
    """The rows that hold all these words, as lists of cells."""
    rows = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("|")]
    return [row for row in rows if all(word in row for word in words)]


def shown(values):
    return f"{short(statistics.fmean(values))} ± {short(statistics.stdev(values))}"


# --- cells ---------------------------------------------------------------------------------------------


def test_a_mean_is_over_seeds_and_a_lone_seed_borrows_the_widest_spread():
    lone = made.run("paper", "ml-1m", "mf", "bpr", 0.3)
    many = made.runs("paper", "ml-1m", "mf", "dpl", 0.35)
    study = study_of(Lines([lone, *many]), "paper")
    values = [run.metrics["ndcg@20"] for run in many]
    mean = study.mean("ml-1m", "mf", "dpl")
    assert mean == Mean(statistics.fmean(values), statistics.stdev(values), 3)
    borrowed = study.mean("ml-1m", "mf", "bpr")
    assert borrowed.sd == mean.sd
    assert "±" not in str(borrowed)
    assert study_of(Lines([lone]), "paper").mean("ml-1m", "mf", "bpr").sd is None
    assert study.mean("ml-1m", "mf", "hcl") is None


def test_a_reference_point_is_solved_and_has_no_spread():
    study = study_of(Lines([made.run("clean", "ml-1m", "-", "ease", 0.4)]), "clean")
    assert study.mean("ml-1m", "-", "ease").sd == 0


def test_runs_of_other_settings_or_splits_are_left_out_and_counted():
    many = made.runs("paper", "ml-1m", "mf", "dpl", 0.30)
    better = made.run("paper", "ml-1m", "mf", "dpl", 0.9, parameters={"loss": "other"})
    elsewhere = made.run("paper", "ml-1m", "mf", "dpl", 0.9, split="another")
    seeded = made.run("paper", "ml-1m", "mf", "dpl", 0.30, 7, parameters=many[0].parameters | {"seed": 7})
    cell = study_of(Lines([better, elsewhere, *many, seeded]), "paper").cells["ml-1m", "mf", "dpl", ""]
    assert [run.seed for run in cell.runs] == [0, 1, 2, 7]
    assert cell.left_out == 2


def test_a_difference_counts_beyond_two_standard_errors():
    a, b = Mean(0.35, 0.003, 9), Mean(0.34, 0.004, 16)
    gap = difference(a, b)
    assert gap.value == pytest.approx(0.01)
    assert gap.error == pytest.approx(0.001 * 2**0.5)
    assert [Difference(x, 0.1).sign for x in (0.21, -0.21, 0.19, 0.0)] == [1, -1, 0, 0]
    assert Difference(1.0, None).sign == 0


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
    brief, full = rows_of(text.split("#### MovieLens-1M")[1].split("####")[0], "MF", "DPL")
    assert brief[2] == "3"
    assert brief[3] == f"{shown([r.metrics['ndcg@20'] for r in runs])} (.3891)"
    assert brief[-1] == shown([r.last["ndcg@20"] for r in runs])
    for metric, cell in zip(METRICS, full[2:], strict=True):
        assert cell.startswith(shown([r.metrics[metric] for r in runs]) + "<br>(")


def test_doubted_cells_are_marked_and_explained_and_the_caption_says_optimistic():
    text = reproduction(WHOLE)
    assert "(.1866†)" in text
    assert "less than half of NDCG@5" in text
    assert text.count("Optimistic") == 2


def test_what_was_not_run_says_so():
    lines = Lines(made.runs("paper", "ml-1m", "mf", "dpl", 0.35))
    text = reproduction(lines)
    assert rows_of(text, "LightGCN", "BPR")[0][2:4] == ["not run", "not run (.3172)"]
    assert "Not run, as no line tells of it: MovieLens-100k." in text
    assert "`truepair paper run`" in text
    assert "Yahoo!-R3 is not run" in text


def test_bars_are_met_or_not():
    low = made.runs("paper", "gowalla", "mf", "dpl", 0.10)
    high = made.runs("paper-tuned", "gowalla", "mf", "dpl-hard", 0.14)
    by_place = {(r.dataset, r.encoder): r for r in reached(Lines([*low, *high]))}
    bar = by_place["gowalla", "mf"]
    assert bar.met
    assert bar.authors[1].value < bar.bar < bar.tuned[1].value
    assert by_place["gowalla", "lightgcn"].met is None
    assert reached(Lines(low))[4].met is False
    row = rows_of(bars_table(Lines(low)), "Gowalla", "MF")[0]
    assert row[-1] == "**no**"
    assert row[4] == "not run"


def test_each_encoder_has_its_own_bar():
    lines = Lines(made.runs("paper", "ml-1m", "lightgcn", "dpl", 0.5))
    assert [(r.encoder, r.met) for r in reached(lines) if r.dataset == "ml-1m"] == [
        ("mf", None),
        ("lightgcn", True),
    ]


def test_tuned_runs_are_shown_with_their_variant():
    lines = Lines(made.runs("paper-tuned", "ml-1m", "mf", "dpl", 0.4, variant="d = 64"))
    assert rows_of(tuned_table(lines), "MF DPL (d = 64)")[0][2] == "3"
    assert "`truepair paper run`" in tuned_table(Lines())


# --- clean ---------------------------------------------------------------------------------------------


def test_the_best_stands_first_and_in_bold():
    text = clean_tables(WHOLE)
    first = rows_of(text, "**EASE**")[0]
    assert first[0] == "1"
    nine = rows_of(text, "EASE")[0]
    assert all(cell.startswith("**") for cell in nine[1:])


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


def test_clean_rows_that_were_not_run_say_so():
    text = clean_tables(Lines(made.runs("clean", "ml-1m", "mf", "dpl", 0.35)))
    assert rows_of(text, "EASE")[0][1] == "not run"
    assert "LightGCN HCL, " in text.split("#### MovieLens-1M")[1].split("no line tells of it:")[1]
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
    assert row[3].startswith(short(statistics.fmean(last["half"]) - statistics.fmean(last["dpl"])))
    assert row[4] == shown([r.metrics["ndcg@20"] for r in runs["half"]])
    assert row[5] == "2.0%"
    assert rows_of(text, "`bpr-matched`")[0][2] == "not run"
    assert "Not run" in ablation_tables(Lines())


def test_effort_counts_trials_and_shows_what_was_chosen():
    row = rows_of(effort_table(WHOLE), "MovieLens-1M")[0]
    assert row == [
        "MovieLens-1M",
        "MF DPL",
        "3",
        "1",
        "1",
        "–",
        ".2000",
        "40",
        "dim 32, learning_rate 0.001",
        "3.0 min",
    ]
    told = [dataclasses.replace(t, parameters=dict(t.parameters) | {"extended": 2}) for t in WHOLE.trials]
    assert rows_of(effort_table(Lines(trials=told)), "MovieLens-1M")[0][5] == "2"
    failed = [dataclasses.replace(t, state="failed", score=None) for t in WHOLE.trials]
    assert rows_of(effort_table(Lines(trials=failed)), "MovieLens-1M")[0][6] == "–"


def test_times_sessions_data_and_versions():
    assert rows_of(timing_table(WHOLE), "MovieLens-1M", "MF BNS", "NVIDIA H200")[0][-2:] == ["0.4", "4.00"]
    assert rows_of(session_table(WHOLE), "CPU, 2 threads", "2.0 h")[0] == [
        "CPU, 2 threads",
        "1",
        "12",
        "2.0 h",
    ]
    assert rows_of(data_table(WHOLE), "`split-of-ml-1m`", "sweep")[0][-1] == "60"
    assert "truepair 0.1.0" in versions_text(WHOLE)
    assert "torch" not in versions_text(WHOLE)
    assert "learning_rate 0.001" in settings_table(WHOLE)


@pytest.mark.parametrize("make", [effort_table, timing_table, session_table, data_table])
def test_without_lines_a_table_says_so(make):
    assert "Not run" in make(Lines())
