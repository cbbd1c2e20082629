"""The paper's presets: every run that a study can want is a run that can be made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from truepair.data.datasets.registry import DATASETS
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import joined
from truepair.search.domains import When
from truepair.search.running import check_space
from truepair.training.job import Job
from truepair.training.sampled.gpu.engine import too_wide
from truepair_lab.lines import Lines
from truepair_lab.paper import presets
from truepair_lab.paper.presets import (
    DATA,
    ENCODERS,
    METHODS,
    METHODS_OF,
    METRICS,
    NO_ENCODER,
    REFERENCES,
    Material,
    ablations,
    authors_parameters,
    causes,
    load_material,
    other_split,
    sweeps,
)
from truepair_lab.paper.report.published import COUNTS
from truepair_lab.paper.running.plan import packaged_settings, settled, wanted_runs
from truepair_lab.paper.running.search import TRIALS, fixed_of, lasting, space_of
from worlds import two_tastes

PLACES = [(e, m) for e in ENCODERS for m in METHODS_OF[e]] + [(NO_ENCODER, m) for m in REFERENCES]


def job_of(flat: dict[str, object]) -> Job:
    return Recommender.of(flat).job(two_tastes())


def test_the_names_are_those_of_the_catalogue() -> None:
    assert {data.source for data in DATA.values()} <= set(DATASETS)
    assert len(METRICS) == 9


@pytest.mark.parametrize("name", DATA)
def test_every_preset_is_a_job(name: str) -> None:
    data = DATA[name]
    flats = [authors_parameters(data, e, m) for e in ENCODERS for m in METHODS]
    flats += [*ablations(data).values(), *sweeps(data, "mf").values(), *sweeps(data, "lightgcn").values()]
    for flat in flats:
        job = job_of(flat)
        assert (job.settings.epochs, job.settings.batch_size, job.encoder.dim) == (200, 1024, 32)
        assert job.settings.patience is None
        assert too_wide(job) is None


def test_the_authors_settings() -> None:
    flat = authors_parameters(DATA["ml-1m"], "lightgcn", "dpl")
    assert (flat["n_extra"], flat["n_unlabelled"], flat["loss.tau"]) == (5, 1, 0.05)
    assert (flat["weight_decay"], flat["encoder.hops"]) == (1e-6, 1)
    # the authors' bound of 0.01 is on the difference before it is divided by 1 − τ
    assert flat["loss.floor"] == pytest.approx(0.01 / 0.95, abs=1e-6)
    assert authors_parameters(DATA["yelp2018"], "lightgcn", "dpl")["n_extra"] == 10


def test_an_ablation_takes_away_one_thing() -> None:
    found = ablations(DATA["ml-1m"])
    changed = {name: {k for k in flat if flat.get(k) != found["dpl"].get(k)} for name, flat in found.items()}
    assert changed["dpl"] == set()
    assert changed["half"] == {"loss", "n_extra"}
    assert changed["relative-clamp"] == {"loss.clamp"}
    assert found["bpr-matched"]["n_unlabelled"] == sum(DATA["ml-1m"].mf)
    for soft, top in (("hard", "dns"), ("hard-alone", "dns-alone")):
        names = {k for k in found[soft] | found[top] if found[soft].get(k) != found[top].get(k)}
        assert names == {"loss", "loss.beta", "sampler", "sampler.pool"}
    assert (found["dns"]["sampler.pool"], found["dns"]["n_unlabelled"]) == (50, 10)


def test_a_cause_changes_one_thing() -> None:
    data = DATA["gowalla"]
    rows = {"weight_decay", "l2_users", "l2_items"}
    names = {"decay": {"weight_decay"}, "rows": rows, "step": {"decay"}, "batch": {"batch_size"}}
    for encoder, method, variant, flat in causes(data):
        base = authors_parameters(data, encoder, method)
        changed = {k for k in flat if flat.get(k) != base.get(k)}
        assert changed == names.get(variant.split("=")[0], set())
        assert too_wide(job_of(flat)) is None
    assert {w.dataset for name in DATA for w in wanted_runs(DATA[name], ["causes"], {})} == {
        "yelp2018", "gowalla",
    }  # fmt: skip


def test_other_splits_are_of_the_same_pairs() -> None:
    pairs = two_tastes()
    whole = split_random(pairs, 0.2, seed=2023)
    material = Material(DATA["gowalla"], whole, whole)
    for name in ("2024", "per-user"):
        other = other_split(material, name).whole
        assert joined([other.train, other.test]).hash == pairs.hash
        assert other.hash != whole.hash
        assert len(other.test) == pytest.approx(0.2 * len(pairs), rel=0.2)
    assert other_split(material, "2023").whole.hash == whole.hash


@pytest.mark.parametrize(("encoder", "method"), PLACES)
def test_every_space_can_be_searched(encoder: str, method: str) -> None:
    space, fixed = space_of(encoder, method), fixed_of(DATA["gowalla"], encoder, method)
    if method == "popularity":
        assert space == {}
        return
    check_space(space, fixed)
    if method == "ials":
        return
    for scoring in ("dot", "cosine") if encoder != NO_ENCODER else ("",):
        chosen = {"encoder.scoring": scoring} if scoring else {}
        for name, entry in space.items():
            if isinstance(entry, When):
                chosen |= {name: entry.domain.middle()} if scoring == entry.value else {}
            elif name not in chosen:
                chosen[name] = entry.middle()
        model = Recommender.of(fixed | chosen)
        wanted = 1024 if method == "bns" else 8192
        assert not model.spec.is_trained or model.job(two_tastes()).settings.batch_size == wanted


def test_every_trained_method_has_the_same_shared_ranges() -> None:
    shared = {"learning_rate", "weight_decay", "encoder.dim", "encoder.scoring"}
    for encoder in ENCODERS:
        spaces = [space_of(encoder, method) for method in METHODS_OF[encoder]]
        for name in shared:
            assert len({repr(space[name]) for space in spaces}) == 1
        temperatures = {repr(s.get("loss.temperature", s.get("encoder.temperature"))) for s in spaces}
        assert len(temperatures) == 1
    assert TRIALS["mf"] >= 30
    assert TRIALS["lightgcn"] >= 10


def test_wanted_runs_come_seed_by_seed() -> None:
    data = DATA["ml-1m"]
    found = wanted_runs(data, ["paper", "sweep", "ablation"], {}, 2)
    assert [wanted.seed for wanted in found] == sorted(wanted.seed for wanted in found)
    assert len({wanted.key("x") for wanted in found}) == len(found)
    assert wanted_runs(DATA["gowalla"], ["sweep", "ablation"], {}, 2) == []


def test_each_study_has_its_habit_of_seeds() -> None:
    found = wanted_runs(DATA["ml-1m"], ["paper", "sweep"], {})
    seeds = {(w.study, w.method, w.seed) for w in found}
    assert ("paper", "dpl", 4) in seeds
    assert ("paper", "bpr", 2) in seeds
    assert ("paper", "bpr", 3) not in seeds
    assert ("sweep", "dpl", 3) not in seeds


def test_the_clean_protocol_trains_for_the_chosen_epochs() -> None:
    best = {"parameters": {"epochs": 100, "patience": 15, "validate_every": 5, "loss": "bpr"}, "epoch": 35}
    assert settled(best) == {"epochs": 35, "patience": None, "loss": "bpr"}
    tuned = {
        ("ml-1m", "mf", "bpr"): best,
        ("ml-1m", "-", "ease"): {"parameters": {"encoder": "ease"}, "epoch": 1},
    }
    found = wanted_runs(DATA["ml-1m"], ["clean"], tuned, 3)
    assert [(w.method, w.seed) for w in found] == [("bpr", 0), ("ease", 0), ("bpr", 1), ("bpr", 2)]


def test_lasting_parameters_are_those_that_change_a_result() -> None:
    assert lasting({"loss": "bpr", "engine": "gpu", "device": "cuda", "metric": "ndcg@20"}) == {"loss": "bpr"}


def test_packaged_settings_can_be_run() -> None:
    for (dataset, encoder, method), best in packaged_settings().items():
        assert (encoder, method) in PLACES
        assert dataset in DATA
        if method != "ials":
            assert Recommender.of(settled(best)).spec.metric


def test_no_lines_is_no_trials() -> None:
    assert Lines().trials == ()


def test_files_that_are_not_the_published_ones_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(presets, "load", lambda *given: two_tastes())
    monkeypatch.setitem(DATA, "gowalla", replace(DATA["gowalla"], split_hash="other"))
    with pytest.raises(InputError, match="are not the published ones"):
        load_material("gowalla", tmp_path)


@pytest.mark.parametrize("name", [name for name in DATA if name != "yahoo-r3"])
def test_the_splits_of_the_real_data(name: str, real_data: Path) -> None:
    if not (real_data / DATA[name].source).is_dir():
        pytest.skip(f"{real_data} has no {DATA[name].source}")
    material = load_material(name, real_data)  # checks the hash
    train, test = material.whole.train, material.whole.test
    assert (train.n_users, train.n_items, len(train) + len(test)) == COUNTS[name]
    assert material.holdout.test.hash == material.whole.test.hash
    assert material.holdout.valid is not None
    assert len(material.holdout.valid) == pytest.approx(0.1 * len(material.train), abs=1)
