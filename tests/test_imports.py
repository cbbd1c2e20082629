"""Imports go one way, from the data to the product; and importing truepair stays light."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import truepair

SOURCES = Path(truepair.__file__).parents[1]
MAP = Path(__file__).parents[1] / "docs" / "map.md"


def order_on_the_map():
    """The modules in the order of docs/map.md; a package follows its last module."""
    block = re.search(r"^```\n(src/truepair/.*?)^```", MAP.read_text(), re.MULTILINE | re.DOTALL)[1]
    order, open_folders = [], []  # (indentation, name) of the folders that a line is in
    for line in block.splitlines():
        names = re.match(r"\s*((?:\S+(?:/|\.py)(?:\s|$))+)", line)
        if not names:
            continue  # an empty line, or one more line of a description
        indentation = len(line) - len(line.lstrip())
        while open_folders and open_folders[-1][0] >= indentation:
            name = open_folders.pop()[1]
            order.append(dotted(open_folders, name))
        for name in names[1].split():
            if name.endswith("/"):
                open_folders.append((indentation, name.removeprefix("src/").rstrip("/")))
            else:
                order.append(dotted(open_folders, name.removesuffix(".py")))
    while open_folders:
        name = open_folders.pop()[1]
        order.append(dotted(open_folders, name))
    return order


def dotted(folders, name):
    return ".".join([*(folder for _, folder in folders), name])


def name_of(path):
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PACKAGES = ("truepair", "truepair_lab")
MODULES = {name_of(path): path for package in PACKAGES for path in (SOURCES / package).rglob("*.py")}
ORDER = order_on_the_map()


@cache
def imported(path):
    """The modules of truepair that a module imports, each once."""
    return list(dict.fromkeys(imports_of(path)))


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        assert not (isinstance(node, ast.ImportFrom) and node.level), "imports are written out, not relative"
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}  # perhaps modules
            yield from parts & set(MODULES) or {node.module}
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in PACKAGES)


def test_every_module_has_one_line_on_the_map():
    assert len(ORDER) == len(set(ORDER))
    assert sorted(ORDER) == sorted(MODULES)


def test_a_module_imports_only_from_lines_above_it():
    place = {module: k for k, module in enumerate(ORDER)}
    lazy_names = {"truepair"}  # the public names: their home is loaded when one is used
    wrong = [
        f"{module} imports {name}"
        for module in ORDER
        if module not in lazy_names
        for name in imported(MODULES[module])
        if place[name] >= place[module]
    ]
    assert wrong == []


def test_the_product_does_not_import_the_lab():
    wrong = [
        module
        for module, path in MODULES.items()
        if not module.startswith("truepair_lab")
        and any(name.startswith("truepair_lab") for name in imported(path))
    ]
    assert wrong == []


def is_source(path):
    """A file, or a folder that has source files: not one that only holds what an earlier version compiled.

    py.typed is a mark for type checkers.
    """
    return (path.is_file() and path.name != "py.typed") or any(path.rglob("*.py"))


def test_folders_stay_small():
    folders = [SOURCES / package for package in PACKAGES]
    folders += [path for folder in folders for path in folder.rglob("*") if path.is_dir()]
    entries = {folder: [p for p in folder.iterdir() if is_source(p)] for folder in folders}
    assert len(entries[SOURCES / "truepair"]) <= 20
    del entries[SOURCES / "truepair"]
    assert [folder for folder, inside in entries.items() if len(inside) > 18] == []


def test_training_cannot_see_the_test_set():
    blind = tuple(f"truepair.{room}" for room in ("training", "sampling", "losses", "models"))
    hidden = ("truepair.evaluation", "truepair.data.split")
    for module in ORDER:
        if module.startswith(blind):
            assert not [name for name in imported(MODULES[module]) if name.startswith(hidden)], module


IMPORTS = {
    "losses": "import truepair.losses",
    "all public names": "import truepair\nfor name in truepair.__all__: getattr(truepair, name)",
    "without optuna": "sys.modules['optuna'] = None\n"
    "import truepair.tuning.report, truepair.cli.commands.tune",
}


@pytest.fixture(scope="module")
def loaded():
    """The modules that are loaded after each of IMPORTS, one after the other in one fresh process."""
    steps = "".join(f"{code}\nprint(*sys.modules)\n" for code in IMPORTS.values())
    run = subprocess.run([sys.executable, "-c", f"import sys\n{steps}"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return dict(zip(IMPORTS, map(str.split, run.stdout.splitlines()), strict=True))


def test_help_loads_nothing_heavy():
    heavy = {"torch", "numpy", "pyarrow", "scipy", "pandas", "truepair.recommender.estimator", "truepair_lab"}
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
