"""Each registered loss by its name: search space, command line, model files, the table of docs/losses.md."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.losses import BCE, CCL, LOSSES
from truepair.losses.base import parameters_of
from truepair.recommender.estimator import Recommender
from truepair.search.domains import Choice, Range, domain_of
from truepair.search.spaces import default_space
from worlds import two_tastes

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
DATA = two_tastes(n_users=20, n_items=16, each=4)
NEW = ["bce", "ccl"]


def test_the_table_of_the_page_has_every_loss_with_its_parameters():
    rows = re.findall(r"^\| `([a-z-]+)` \| `(\w+\([^)]*\))` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(name, signature(kind)) for name, kind in LOSSES.items()]


def signature(kind):
    fields = [field for field in dataclasses.fields(kind) if field.repr]
    names = [f.name for f in fields if not f.kw_only] + [f.name for f in fields if f.kw_only]
    forbidden = {"margin"} if kind.__name__ == "DPLHalf" else set()
    return f"{kind.__name__}({', '.join(name for name in names if name not in forbidden)})"


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_searched_is_allowed(name):
    space = default_space(name)
    for field, parameter in parameters_of(LOSSES[name]).items():
        if parameter.search is None or f"loss.{field}" not in space:
            continue
        domain = domain_of(space[f"loss.{field}"])
        values = domain.values if isinstance(domain, Choice) else (domain.low, domain.middle(), domain.high)
        for value in values:
            assert getattr(LOSSES[name](**{field: value}), field) == value


def test_the_search_spaces_of_bce_and_ccl():
    assert default_space("bce")["loss.weight"] == Range(0.1, 10.0, log=True)
    ccl = default_space("ccl", sampler="uniform")
    assert ccl["loss.weight"] == Range(1.0, 1000.0, log=True)
    assert ccl["loss.margin"] == Range(0.0, 0.95, most=0.99)
    assert (ccl["encoder.scoring"], ccl["encoder.temperature"]) == (Choice(["cosine"]), Choice([1.0]))


@pytest.mark.parametrize("sampler", ["full", "uniform"])
def test_ccl_has_cosines_at_temperature_1_unless_told_otherwise(sampler):
    def spec(**parameters):
        return Recommender(sampler=sampler, **parameters).spec

    encoder = spec(loss="ccl").encoder
    assert (spec(loss="ccl").loss, encoder.scoring, encoder.temperature) == (CCL(), "cosine", 1.0)
    encoder = spec(loss=CCL(margin=0.3), temperature=0.5).encoder
    assert (encoder.scoring, encoder.temperature) == ("cosine", 0.5)
    assert spec(loss="bce").loss == BCE()


@pytest.mark.parametrize("sampler", ["full", "uniform"])
@pytest.mark.parametrize("loss", [BCE(weight=2.0), CCL(weight=5.0, margin=0.2)], ids=repr)
def test_a_saved_model_gives_the_same_lists(loss, sampler, tmp_path):
    model = Recommender(loss=loss, sampler=sampler, epochs=3, metric="ndcg@5", device="cpu").fit(DATA)
    model.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.loss == loss
    users = list(range(5))
    for a, b in zip(model.recommend(users, k=3), loaded.recommend(users, k=3), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("loss", NEW)
def test_fit_on_the_command_line(loss, tmp_path):
    table = tmp_path / "clicks.csv"
    rows = [f"u{u},i{i}" for u in range(20) for i in DATA.items_of(u)]
    table.write_text("\n".join(["user,item", *rows]) + "\n")
    model = tmp_path / "m"
    options = ["--loss", loss, "--epochs", "2", "--set", "loss.weight=3.0", "--output", str(model)]
    out = CliRunner().invoke(app, ["fit", str(table), *options])
    assert out.exit_code == 0, out.output
    assert LOSSES[loss](weight=3.0) == Recommender.load(model).loss


@pytest.mark.long
def test_a_registered_loss_without_a_family_trains_by_its_definition():
    """It may be registered before or after engines are loaded."""
    code = """
from dataclasses import dataclass
from truepair.losses import LOSSES, Loss, Rows

@dataclass(frozen=True)
class Hinge(Loss):
    def _rows(self, pos, extra, unlabelled, users):
        return Rows((1 - pos[:, None] + unlabelled).clamp(min=0).mean(dim=1), None)

LOSSES["hinge"] = Hinge
import truepair as tp
clicks = tp.simulate_world(40, 30, tau=0.1, density=0.1).observed
print(tp.Recommender(loss="hinge", sampler="uniform", dim=4, epochs=2).fit(clicks).result_.engine)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["reference"]
