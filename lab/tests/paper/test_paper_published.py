"""The paper's tables, against sums and columns that were typed apart from them."""

import pytest

from truepair_lab.paper.presets import DATA, METRICS
from truepair_lab.paper.report.published import (
    BARS,
    DOUBTED,
    HARD_COUNTS,
    PUBLISHED,
    TABLE_II,
    TABLE_III,
    published,
)

LOSSES = ("bpr", "infonce", "dcl", "hcl", "dpl")
# the nine cells of each row added up, one number a loss
SUMS = {
    ("ml-100k", "mf"): (2.8822, 3.0654, 3.0014, 3.1068, 3.1724),
    ("ml-100k", "lightgcn"): (2.8856, 2.8958, 2.9179, 3.0491, 3.1545),
    ("ml-1m", "mf"): (2.6649, 2.7108, 2.6031, 2.7785, 2.8337),
    ("ml-1m", "lightgcn"): (2.3088, 2.8048, 2.7813, 2.7465, 2.6156),
    ("yahoo-r3", "mf"): (1.3274, 1.3664, 1.3508, 1.3720, 1.3859),
    ("yahoo-r3", "lightgcn"): (0.98752, 1.3703, 1.3777, 1.4123, 1.4161),
    ("yelp2018", "mf"): (0.3717, 0.4003, 0.4490, 0.5291, 0.5159),
    ("yelp2018", "lightgcn"): (0.5235, 0.5217, 0.5234, 0.5277, 0.5696),
    ("gowalla", "mf"): (0.8458, 0.8572, 0.8669, 0.8768, 0.9415),
    ("gowalla", "lightgcn"): (0.8521, 0.8610, 0.8643, 0.9148, 1.0002),
}
SUMS_III = {
    ("ml-100k", "bns"): 3.0604, ("ml-100k", "dpl-hard"): 3.2070,
    ("ml-1m", "bns"): 2.8666, ("ml-1m", "dpl-hard"): 2.8649,
}  # fmt: skip
LAST_COLUMN = {  # NDCG@20 of BPR and DPL
    ("ml-100k", "mf"): (0.3962, 0.4338), ("ml-100k", "lightgcn"): (0.3986, 0.4331),
    ("ml-1m", "mf"): (0.3680, 0.3891), ("ml-1m", "lightgcn"): (0.3172, 0.3896),
    ("yahoo-r3", "mf"): (0.1913, 0.2012), ("yahoo-r3", "lightgcn"): (0.1611, 0.2054),
    ("yelp2018", "mf"): (0.0538, 0.0749), ("yelp2018", "lightgcn"): (0.0757, 0.0821),
    ("gowalla", "mf"): (0.1209, 0.1340), ("gowalla", "lightgcn"): (0.1218, 0.1417),
}  # fmt: skip


@pytest.mark.parametrize("place", SUMS, ids=" ".join)
def test_the_rows_of_table_ii_add_up(place):
    sums = [sum(TABLE_II[(*place, loss)].values()) for loss in LOSSES]
    assert sums == pytest.approx(SUMS[place], abs=1e-9)
    ends = tuple(TABLE_II[(*place, loss)]["ndcg@20"] for loss in ("bpr", "dpl"))
    assert ends == LAST_COLUMN[place]


def test_the_rows_of_table_iii_add_up():
    assert {(d, m): sum(row.values()) for (d, _, m), row in TABLE_III.items()} == pytest.approx(SUMS_III)


def test_every_dataset_has_all_its_rows_and_every_row_nine_metrics():
    assert len(TABLE_II) == len(DATA) * 2 * len(LOSSES)
    assert all(tuple(row) == METRICS for row in PUBLISHED.values())


def test_doubted_cells_exist_keep_their_value_and_are_not_trusted():
    assert len(DOUBTED) == 9
    for cell, reason in DOUBTED.items():
        printed = published(*cell)
        assert printed.value == PUBLISHED[cell[:3]][cell[3]]
        assert printed.doubt == reason
        assert printed.trusted is None
    assert published("ml-1m", "lightgcn", "dpl", "ndcg@10").value == 0.1866  # never corrected


def test_cells_without_doubt_are_trusted_and_others_do_not_exist():
    assert published("gowalla", "mf", "dpl", "recall@20").trusted == 0.1815
    assert published("gowalla", "mf", "bns", "recall@20") is None
    assert published("gowalla", "mf", "dpl", "recall@50") is None


def test_the_bars_are_those_of_dpl():
    bars = [published(dataset, encoder, "dpl", "ndcg@20").trusted for dataset, encoder in BARS]
    assert bars == [0.4338, 0.4331, 0.3891, 0.3896, 0.1340, 0.1417, 0.0749, 0.0821]
    assert HARD_COUNTS == ("gowalla", "yelp2018")
