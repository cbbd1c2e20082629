"""Weights by a first model in the truth lab: what is trained, lines that are not made twice, the section."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from truepair.data.simulation import simulate_world
from truepair.losses import InfoNCE
from truepair_lab import store
from truepair_lab.posterior import InfoNCEPosterior
from truepair_lab.truth.cases import hidden_case, mask_of
from truepair_lab.truth.lines import PosteriorLine, append
from truepair_lab.truth.report.posterior import chosen_csv, gain_table, section, trials_of
from truepair_lab.truth.supervised_infonce import fit_supervised, supervised_job
from truepair_lab.truth.weighted_infonce import KIND, TITLES, Bench, Effort, Point, _of_kind, run_posterior

POINTS = Point("cosine", 0.3, 1e-5), Point("cosine", 3.2, 1e-5), Point("dot", 1.0, 1e-4)
QUICK = Effort(points=POINTS, epochs=2, patience=2, batch_size=16, dim=4, rate=0.02)


def read(folder):
    return store.read(folder, PosteriorLine)[0]


def tiny(seed=0):
    world = simulate_world(60, 50, tau=0.2, density=0.1, seed=seed)
    return hidden_case(world.positives, "tiny", "random", 0.5, seed)


class Worlds:
    """Asked of a tiny world."""

    def case(self, seed):
        return tiny(seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("lines")
    assert run_posterior(Worlds(), 2, path, lambda text: None, QUICK) >= 8
    return path


def test_every_treatment_has_a_line_a_seed(folder):
    lines = read(folder)
    asked = {(line.treatment, line.seed) for line in lines if not line.treatment.endswith(KIND)}
    assert asked == {(name, seed) for name in TITLES for seed in (0, 1)}
    for line in lines:
        assert bool(line.search) == (line.seed == 0 and not line.treatment.endswith(KIND))
        assert 0 < line.quality["ndcg@20"] <= 1
        assert (line.prior is None) == (line.treatment in ("infonce", "supervised"))
        if line.prior is not None:
            assert 0 <= line.chance["negative"] <= 1
    true = [line for line in lines if line.treatment == "posterior"]
    assert all(line.prior == pytest.approx(line.tau) for line in true)


def test_what_has_a_line_is_not_done_again(folder):
    before = read(folder)
    assert run_posterior(Worlds(), 2, folder, lambda text: None, QUICK) == 0
    assert read(folder) == before


def test_the_first_model_is_plain_infonce_and_is_trained_once():
    bench = Bench(tiny(), QUICK)
    plain = bench.fitted("infonce", POINTS[0])
    loss = bench.loss("posterior", POINTS[0])
    assert bench.first(POINTS[0]) is plain
    assert isinstance(loss, InfoNCEPosterior)
    assert torch.equal(loss.posterior.items, plain.items)
    assert plain.job.interactions == bench.case.train


def test_a_supervised_model_never_meets_a_judged_pair():
    case = tiny()
    plain = Bench(case, QUICK).job(POINTS[0], InfoNCE(0.3))
    job = supervised_job(plain, case)
    judged = case.judged | mask_of(case.valid)
    assert not (job.negatives & (case.truth | judged)).any()
    assert not (mask_of(job.interactions) & (~case.truth | judged)).any()
    result = fit_supervised(plain, case)
    assert result.engine == "full"
    np.testing.assert_array_equal(result.job.negatives, job.negatives)
    assert result.users.isfinite().all()


def test_the_section_says_what_the_lines_say(folder):
    lines = read(folder)
    text = section(trials_of(lines))
    assert text == section(trials_of(reversed(lines)))
    for title in TITLES.values():
        assert title in text
    assert "nan" not in text
    rows = [line for line in text.splitlines() if line.startswith("| tiny")]
    assert len(rows) == 1 + 2
    table = chosen_csv(trials_of(lines))
    assert table == chosen_csv(trials_of(reversed(lines)))
    assert len(table.splitlines()) == 1 + 4


def test_gains_are_bold_where_significant_and_shares_of_the_gap():
    better, worse, level = (gain_table(trials_of(made(gain))).splitlines()[2] for gain in (0.02, -0.02, 0.0))
    assert "| **+.0" in better
    assert "| **-.0" in worse
    assert "| **" not in level.split(" | ")[2]
    assert trials_of(made(0.02))[0].closed("posterior") == pytest.approx(0.2, abs=0.02)
    assert " | 2" in better


def made(gain):
    """InfoNCE at .6, its supervised twin at .7, the weights between; four seeds that differ a little."""
    levels = {"infonce": 0.6, "posterior": 0.6 + gain, "posterior-auto": 0.6 + gain / 2, "supervised": 0.7}
    lines = []
    for place, (name, level) in enumerate(levels.items()):
        for seed in range(4):
            wobble = 0.0005 * ((seed * seed * (place + 1)) % 5 - 2)
            lines.append(line_of(name, seed, level + wobble))
    return lines


def line_of(name, seed, value):
    weighs = name.startswith("posterior")
    return PosteriorLine(
        case="simulation",
        exposure="random",
        hide=0.5,
        treatment=name,
        seed=seed,
        tau=0.09,
        prior=0.08 if weighs else None,
        scoring="cosine",
        temperature=0.4,
        weight_decay=1e-5,
        search=[["cosine", 0.4, 1e-5, 0.2], ["cosine", 0.8, 1e-5, 0.1]] if seed == 0 else [],
        score=value / 3,
        epoch=5,
        quality={"ndcg@20": value},
        chance={"positive": 0.3, "negative": 0.07} if weighs else {},
        seconds=1.0,
    )


def test_weights_with_another_kind_of_scores_are_run_with_infonces_kind_too():
    lines = {line.treatment: line for line in made(0.01) if line.seed == 0}
    assert _of_kind(list(lines.values())) == {}
    tried = [["cosine", 0.4, 1e-5, 0.2], ["cosine", 0.8, 1e-5, 0.3], ["dot", 1.0, 1e-4, 0.4]]
    other = replace(lines["posterior"], scoring="dot", search=tried)
    found = _of_kind([lines["infonce"], other, lines["supervised"]])
    assert found == {"posterior-kind": Point("cosine", 0.8, 1e-5)}
    more = [replace(line_of("posterior-kind", seed, 0.61), scoring="cosine") for seed in range(4)]
    both = [replace(x, scoring="dot") if x.treatment == "posterior" else x for x in made(-0.02)]
    assert "true, InfoNCE's kind of scores" in section(trials_of([*both, *more]))


def test_an_end_of_the_search_is_marked():
    assert ",InfoNCE,cosine,0.4,lowest,1e-05,,5 5 5 5\n" in chosen_csv(trials_of(made(0.01)))
    inner = [replace(line, search=[]) for line in made(0.01)]
    assert "lowest" not in chosen_csv(trials_of(inner))


def test_all_differences_of_a_case_are_corrected_together():
    """At p = .02 the gain alone would be significant; with those of the other columns it is not."""
    (trial,) = trials_of([line for line in made(0.0012) if line.treatment != "supervised"])
    assert trial.gain("posterior").p == pytest.approx(0.0206, abs=1e-4)
    assert trial.significant == frozenset()


def test_a_broken_line_is_left_out_and_named(tmp_path):
    append(tmp_path / "a.jsonl", line_of("infonce", 0, 0.5))
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("{}\n")
    found, broken = store.read(tmp_path, PosteriorLine)
    assert [line.treatment for line in found] == ["infonce"]
    assert [text.split(":")[0] for text in broken] == ["a.jsonl, line 2"]
