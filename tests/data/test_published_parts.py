"""Datasets by name whose parts were published: all pairs, and titles that lie beside them."""

from truepair.data.datasets import loading
from truepair.data.datasets.loading import load_titles
from truepair.data.datasets.registry import DATASETS


def test_a_dataset_of_published_parts_is_read_with_all_of_them(tmp_path):
    (tmp_path / "train.txt").write_text("0 1 2\n1 2\n")
    (tmp_path / "test.txt").write_text("0 3\n1 1\n")
    for name in ("gowalla", "yelp2018"):
        data = DATASETS[name].read(tmp_path)
        pairs = {"user": [0, 0, 0, 1, 1], "item": [1, 2, 3, 1, 2]}
        assert data.to_table().to_pydict() == {**pairs, "order": [0, 1, 2, 1, 0]}  # test continues train
        assert data.time_kind == "order"
        assert data == data.pairs_only()  # results on these pairs know nothing of their order


def test_titles_beside_the_papers_split_need_no_other_dataset(tmp_path, monkeypatch):
    (tmp_path / "item_map.csv").write_text("item,movielens,title\n0,9,Nine\n1,7,Seven\n")
    fetched = []

    def fetch(name, *_):
        fetched.append(name)
        return tmp_path

    monkeypatch.setattr(loading, "fetch", fetch)
    assert load_titles("ml-100k-paper-split") == {0: "Nine", 1: "Seven"}
    assert fetched == ["ml-100k-paper-split"]
