"""`--core N,M`: the least number of items of a user, and of users of an item."""

from truepair.cli.sources import Reading
from truepair.data.reading import read_interactions
from worlds import interactions_of


def test_both_numbers_of_a_core_count(tmp_path):
    data = interactions_of([[0, 1], [0, 1, 2], [0, 2], [0, 3]], 4)
    path = tmp_path / "clicks.csv"
    data.to_table().to_pandas().to_csv(path, index=False)
    found = {core: Reading(core=core).interactions(str(path)) for core in ("1,3", "2,1", "2", "2,2")}
    assert {core: len(pairs) for core, pairs in found.items()} == {"1,3": 4, "2,1": 9, "2": 7, "2,2": 7}
    assert found["1,3"] == read_interactions(path, core=(1, 3))
