"""The file of a space: dotted names are quoted, or tables."""

from truepair.cli.commands.tune import read_space_file
from truepair.search.domains import Choice, Range


def test_dotted_names_and_tables_are_the_same(tmp_path):
    lines = ['"encoder.scoring" = {values = ["dot", "cosine"]}', "dim = [8, 16]"]
    lines += ["[loss.tau]", "low = 0.1", "high = 0.5", "[loss.clamp]", 'values = ["hard"]']
    (tmp_path / "space.toml").write_text("\n".join(lines))
    assert read_space_file(tmp_path / "space.toml") == {
        "encoder.scoring": Choice(["dot", "cosine"]),
        "dim": Choice([8, 16]),
        "loss.tau": Range(0.1, 0.5),
        "loss.clamp": Choice(["hard"]),
    }
