"""The demo: real data or a simulated world, a fair comparison, and a report that stands alone."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from rich.console import Console
from test_page import assert_self_contained

import truepair.reporting.demo as demo
from truepair.data.datasets.loading import load
from truepair.data.simulation import simulate_world
from truepair.errors import DownloadError, InputError
from truepair.evaluation import Comparison, evaluate
from truepair.recommender.estimator import Recommender
from truepair.reporting.demo import print_data, print_result, run_demo
from truepair.reporting.demo_page import (
    DEFAULT,
    FUTURE,
    LATELY,
    TEST,
    TIMELESS,
    TRUTH,
    ModelComparison,
    conclusion,
    demo_page,
)
from truepair.reporting.page import metric_name

pytest.importorskip("matplotlib")
DENSER = {"density": 0.1}


@pytest.fixture(scope="module", autouse=True)
def small_world():
    """The demo's simulated world, with fewer people and items."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            demo, "load", lambda name, folder, progress: load(name, folder) if folder else no_download()
        )
        patch.setattr(
            demo, "simulate_world", lambda *sizes, **options: simulate_world(250, 150, **options | DENSER)
        )
        yield


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "demo.html"
    return run_demo(out=out, epochs=2, quiet=True)


def no_download(*_):
    raise DownloadError("ml-100k could not be downloaded: <no network>")


# --- what is compared ----------------------------------------------------------------------------------


def test_the_default_model_comes_first_and_is_the_plain_call(simulated):
    assert list(simulated.models) == [DEFAULT, "Popularity", "EASE", "BPR", "DPL"]
    job, split = simulated.models[DEFAULT].job, simulated.data.split
    model = Recommender(epochs=2, seed=0).fit(split)
    assert "chosen" in model.facts_["automatic"]
    parts = "encoder", "loss", "sampler", "settings"
    assert all(getattr(job, part) == getattr(model.result_.job, part) for part in parts)
    error = 1e-2 if torch.cuda.is_available() else 0.0  # a GPU does not repeat every bit, and Adam amplifies
    users = (model.matrices()[0], simulated.models[DEFAULT].users)
    dense = [rows.toarray() if sp.issparse(rows) else rows.numpy() for rows in users]
    np.testing.assert_allclose(*dense, rtol=error, atol=error)


def test_ease_has_the_settings_that_are_best_on_validation(simulated):
    models = [Recommender(encoder=ease).fit(simulated.data.split) for ease in demo.EASES]
    scores = [model.evaluate(simulated.data.split, on="valid").mean("ndcg@20") for model in models]
    assert simulated.models["EASE"].score == pytest.approx(max(scores))
    assert simulated.models["EASE"].closed_form == demo.EASES[int(np.argmax(scores))]
    assert {ease.user_power > 0 for ease in demo.EASES} == {True, False}


def test_a_default_that_is_a_blend_is_called_one(simulated):
    assert "a blend with EASE is one" in simulated.report.read_text(encoding="utf-8")
    blended = replace(simulated.models[DEFAULT], engine="full, blended with EASE")
    result = replace(simulated, models={**simulated.models, DEFAULT: blended})
    assert "engine full, blended with EASE" in demo_page(result).html()


def test_bpr_and_dpl_get_the_same_effort(simulated):
    jobs = [simulated.models[name].job for name in ("BPR", "DPL")]
    assert jobs[0].settings == jobs[1].settings
    assert jobs[0].encoder == jobs[1].encoder
    assert jobs[0].sampler == jobs[1].sampler


def test_every_model_learns_from_the_train_part_alone(simulated):
    train = simulated.data.split.train
    for name in (DEFAULT, "BPR", "DPL"):
        assert simulated.models[name].job.interactions is train
    for name in ("Popularity", "EASE"):
        model = simulated.models[name]
        assert model.job is None
        solved = torch.as_tensor(model.closed_form.solve(train)[1])
        torch.testing.assert_close(torch.as_tensor(model.items), solved)  # the demo may solve on a GPU


def test_the_scores_are_of_the_validation_part(simulated):
    for model in simulated.models.values():
        found = evaluate(model, simulated.data.split, on="valid")
        assert model.score == pytest.approx(found.mean("ndcg@20"))


def test_each_model_is_compared_with_the_default(simulated):
    for judgement in simulated.comparisons.values():
        assert [found.a for found in judgement.comparisons] == ["Popularity", "EASE", "BPR", "DPL"]
        for found in judgement.comparisons:
            assert (found.b, found.metric) == (DEFAULT, "ndcg@20")
            assert found.mean_a == judgement.evaluations[found.a].mean("ndcg@20")
            assert found.mean_b == judgement.evaluations[DEFAULT].mean("ndcg@20")
            assert found.low <= found.difference <= found.high
            assert found.p_value <= found.p_corrected  # Holm, over the four comparisons


def test_validation_comes_out_of_train_and_test_is_apart(simulated):
    parts = simulated.data.split.parts
    assert list(parts) == ["train", "valid", "test"]
    n = sum(map(len, parts.values()))
    assert len(parts["test"]) == round(0.2 * n)
    assert len(parts["valid"]) == round(0.08 * n)


def test_a_simulated_world_is_judged_by_the_truth_too(simulated):
    world = simulated.data.world
    assert simulated.comparisons[TRUTH].evaluations["BPR"].n_users == (world.hidden.user_counts > 0).sum()
    assert simulated.models["DPL"].job.loss.tau == pytest.approx(world.tau)
    found = evaluate(simulated.models["EASE"], world.hidden, exclude=world.observed)
    assert simulated.comparisons[TRUTH].evaluations["EASE"].mean("ndcg@20") == found.mean("ndcg@20")


def test_the_same_seed_gives_the_same_and_another_seed_another_and_quiet_is_quiet(
    simulated, tmp_path, capsys
):
    again, other = (run_demo(out=tmp_path / "x.html", epochs=2, quiet=True, seed=seed) for seed in (0, 1))
    assert again.comparisons[TEST].comparisons == simulated.comparisons[TEST].comparisons
    assert again.example.lists == simulated.example.lists
    assert other.comparisons[TEST].comparisons != simulated.comparisons[TEST].comparisons
    assert capsys.readouterr() == ("", "")


# --- one user ------------------------------------------------------------------------------------------


def test_the_user_is_the_median_one():
    n_train, n_test = np.array([9, 0, 3, 5, 7, 1]), np.array([1, 1, 1, 1, 1, 0])
    assert demo._median_user(n_train, n_test) == 4  # of 3, 5, 7, 9: the upper median


def test_lists_hold_nothing_known_and_hits_are_held_out_items(simulated):
    user, split = simulated.example, simulated.data.split
    code = int(split.train.user_ids.codes([user.id])[0])
    held_out = {simulated.data.titles[item] for item in split.test.items_of(code)}
    assert len(held_out) == user.n_held_out
    assert list(user.lists) == [DEFAULT, "EASE", "Popularity"]
    for name, titles in user.lists.items():
        assert len(titles) == demo.LIST_LENGTH
        assert not set(titles) & set(user.history)
        assert user.hits[name] == {at for at, title in enumerate(titles) if title in held_out}


def test_a_history_begins_with_what_was_rated_highest(simulated):
    train = simulated.data.split.train
    rating = np.arange(len(train))
    history = demo._history([replace(train, rating=rating)], 0)
    assert history.tolist() == train.items_of(0)[::-1].tolist()
    assert demo._history([train], 0).tolist() == train.items_of(0).tolist()


# --- where the data is from ----------------------------------------------------------------------------


def test_without_the_real_data_it_says_so_and_simulates(tmp_path, capsys):
    result = run_demo(out=tmp_path / "demo.html", epochs=1)
    assert result.data.world is not None
    printed = capsys.readouterr().out
    for said in (printed, result.report.read_text(encoding="utf-8")):
        assert "MovieLens-100k is not available" in said
    assert "&lt;no network&gt;" in result.report.read_text(encoding="utf-8")


def test_a_damaged_folder_of_the_users_own_is_an_error(tmp_path):
    with pytest.raises(InputError, match="not a folder"):
        run_demo(data_dir=tmp_path / "nothing", out=tmp_path / "demo.html", quiet=True)


def test_real_films_have_titles(real_data, tmp_path):
    data = demo.demo_data(real_data, seed=0)
    assert data.world is None
    assert "Toy Story (1995)" in data.titles
    assert len(data.titles) == data.split.train.n_items == 1682


def test_the_real_report_names_terms_and_citation(real_data, tmp_path):
    result = run_demo(data_dir=real_data, out=tmp_path / "demo.html", epochs=1, quiet=True)
    html = result.report.read_text(encoding="utf-8")
    assert_self_contained(html)
    assert "GroupLens" in html
    assert "Harper" in html
    assert list(result.comparisons) == [TEST, FUTURE]
    assert list(result.comparisons[FUTURE].evaluations) == [DEFAULT, TIMELESS, LATELY]
    assert result.comparisons[FUTURE].evaluations[LATELY].n_users == 109


def test_without_titles_there_are_ids(simulated, monkeypatch):
    monkeypatch.setattr(demo, "load_titles", no_download)
    titles, notes = demo._titles(simulated.data.split.train, None)
    assert titles[0].startswith("item ")
    assert "Titles are not available" in notes[0]


# --- what is said --------------------------------------------------------------------------------------


def test_the_report_stands_alone_and_has_everything(simulated):
    html = simulated.report.read_text(encoding="utf-8")
    assert_self_contained(html)
    assert html.count("<svg") == 2  # bars for clicks and for the truth
    for said in (
        "Recommendations for one user",
        "learning_rate",
        "torch",
        simulated.data.split.hash,
        "true prior",
    ):
        assert said in html
    for title in simulated.example.lists[DEFAULT]:
        assert title in html
    for number in range(1, 6):  # a colour for each model, which the style sheet knows
        assert html.count(f"var(--series-{number})") >= 1
        assert html.count(f"--series-{number}: #") == 2


def test_titles_are_not_trusted(simulated):
    hostile = "<script>alert(1)</script> [bold]x[/nothing]"
    user = replace(
        simulated.example,
        history=(hostile,),
        lists={"EASE": (hostile,), DEFAULT: (hostile, hostile)},
        hits={"EASE": frozenset({0}), DEFAULT: frozenset()},
    )
    result = replace(simulated, example=user)
    assert_self_contained(demo_page(result).html())


def test_the_terminal_shows_the_comparison(simulated, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    console = Console(highlight=False)
    print_data(simulated.data, console)
    print_result(simulated, console)
    printed = capsys.readouterr().out
    for judgement in simulated.comparisons.values():
        for evaluation in judgement.evaluations.values():
            assert f"{evaluation.mean('ndcg@20'):.4f}" in printed
    assert "On all true preferences" in printed
    assert str(simulated.report) in printed


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        (
            {"EASE": (-0.02, 0.04), "BPR": (-0.02, 0.001), "DPL": (-0.02, 0.05)},
            "It is significantly better than EASE (0.3800) and BPR (0.3800); "
            "it is not significantly different from DPL (0.3800).",
        ),
        ({"EASE": (0.02, 0.049)}, "It is significantly worse than EASE (0.4200)."),
        ({"EASE": (0.02, 0.3)}, "It is not significantly different from EASE (0.4200)."),
    ],
)
def test_the_conclusion_follows_the_corrected_p_values(simulated, differences, said):
    comparisons = tuple(
        Comparison("ndcg@20", 0.4 + gap, 0.4, gap, gap - 0.01, gap + 0.01, 0.0, p, name, DEFAULT)
        for name, (gap, p) in differences.items()
    )
    judgement = ModelComparison(simulated.comparisons[TEST].evaluations, comparisons)
    mean = simulated.comparisons[TEST].evaluations[DEFAULT].mean("ndcg@20")
    assert conclusion(judgement, "x") == f"On x, the default has an NDCG@20 of {mean:.4f}. {said}"


def test_names_of_metrics():
    assert [metric_name(m) for m in ("ndcg@20", "recall@5", "hit@1")] == [
        "NDCG@20",
        "Recall@5",
        "Hit rate@1",
    ]


# --- mistakes, reported before training ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"seed": -1}, "seed = -1"),
        ({"epochs": 0}, "epochs = 0"),
    ],
)
def test_mistakes_are_reported(params, said, tmp_path):
    with pytest.raises(InputError, match=said):
        run_demo(**({"out": tmp_path / "x.html", "quiet": True} | params))
    assert not (tmp_path / "x.html").exists()


def test_a_folder_is_no_report(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        run_demo(out=tmp_path, quiet=True)


def test_without_matplotlib_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(demo, "Recommender", None)
    with pytest.raises(InputError, match=r"truepair\[plots\]"):
        run_demo(out=tmp_path / "x.html", quiet=True)
