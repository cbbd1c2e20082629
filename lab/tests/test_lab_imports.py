"""Imports of the lab go one way, as lab/docs/map.md has them."""

from pathlib import Path

import truepair_lab
from source_map import SourceMap

SOURCES = SourceMap(Path(truepair_lab.__file__).parent, Path(__file__).parents[1] / "docs" / "map.md")


def test_every_module_has_one_line_on_the_map():
    assert len(SOURCES.order) == len(set(SOURCES.order))
    assert sorted(SOURCES.order) == sorted(SOURCES.modules)


def test_a_module_imports_only_from_lines_above_it():
    assert SOURCES.wrong_imports() == []


def test_folders_stay_small():
    assert [folder for folder, inside in SOURCES.entries().items() if len(inside) > 18] == []
