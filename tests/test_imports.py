"""Imports go one way, from the data to the product; and importing truepair stays light."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import truepair
from source_map import SourceMap

USER = re.compile(r"truepair\.cli\.\S+ imports truepair")  # commands use the public names, as users do
SOURCES = SourceMap(Path(truepair.__file__).parent, Path(__file__).parents[1] / "docs" / "map.md")


def test_every_module_has_one_line_on_the_map():
    assert len(SOURCES.order) == len(set(SOURCES.order))
    assert sorted(SOURCES.order) == sorted(SOURCES.modules)


def test_a_module_imports_only_from_lines_above_it():
    lazy_names = {"truepair"}  # the public names: their home is loaded when one is used
    wrong = SOURCES.wrong_imports(lazy_names)
    assert [each for each in wrong if not USER.fullmatch(each)] == []


def test_the_product_does_not_know_the_lab():
    assert [name for name, path in SOURCES.modules.items() if "truepair_lab" in path.read_text()] == []


def test_folders_stay_small():
    entries = SOURCES.entries()
    assert len(entries.pop(SOURCES.package)) <= 20
    assert [folder for folder, inside in entries.items() if len(inside) > 18] == []


def test_training_cannot_see_the_test_set():
    blind = tuple(f"truepair.{room}" for room in ("training", "sampling", "losses", "models"))
    hidden = ("truepair.evaluation", "truepair.data.split")
    for module in SOURCES.order:
        if module.startswith(blind):
            assert not [name for name in SOURCES.imported(module) if name.startswith(hidden)], module


IMPORTS = {
    "losses": "import truepair.losses",
    "all public names": "import truepair\nfor name in truepair.__all__: getattr(truepair, name)",
    "without optuna": "sys.modules['optuna'] = None\n"
    "import truepair.reporting.tuning, truepair.cli.commands.tune",
}


@pytest.fixture(scope="module")
def loaded():
    """The modules that are loaded after each of IMPORTS, one after the other in one fresh process."""
    steps = "".join(f"{code}\nprint(*sys.modules)\n" for code in IMPORTS.values())
    run = subprocess.run([sys.executable, "-c", f"import sys\n{steps}"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return dict(zip(IMPORTS, map(str.split, run.stdout.splitlines()), strict=True))


def test_help_loads_nothing_heavy():
    heavy = {"torch", "numpy", "pyarrow", "scipy", "pandas", "truepair.recommender.estimator"}
    code = "import sys, truepair.cli.main; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & heavy


def test_losses_need_nothing_else_of_the_library(loaded):
    own = {name for name in loaded["losses"] if name.startswith("truepair")}
    assert own - {"truepair", "truepair.errors"}
    assert all(name.startswith("truepair.losses") for name in own - {"truepair", "truepair.errors"})


def test_importing_truepair_loads_no_kernels_plots_or_web_code(loaded):
    packages = {name.partition(".")[0] for name in loaded["all public names"]}
    assert not packages & {
        "numba",
        "triton",
        "matplotlib",
        "fastapi",
        "uvicorn",
        "starlette",
        "pandas",
        "polars",
        "rich",
    }


def test_without_optuna_the_names_are_there(loaded):
    assert "truepair.cli.commands.tune" in loaded["without optuna"]


def test_public_names_exist_and_unknown_ones_say_so():
    for name in truepair.__all__:
        assert getattr(truepair, name) is not None
    assert set(truepair.__all__) <= set(dir(truepair))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = truepair.nothing
    with pytest.raises(AttributeError, match=r"no attribute 'Recomender'. Did you mean 'Recommender'?"):
        _ = truepair.Recomender


def test_what_people_construct_is_public():
    from truepair.losses import LOSSES
    from truepair.models.closed_forms import ALL_ENCODERS
    from truepair.sampling import SAMPLERS

    for registry in (LOSSES, SAMPLERS, ALL_ENCODERS):
        for kind in registry.values():
            assert getattr(truepair, kind.__name__) is kind
    recipes = [name for name in dir(truepair.data.split_recipes) if name.startswith("split_")]
    assert set(recipes) <= set(truepair.__all__)
