"""What the paper printed: Tables II and III as data, and the cells of it that cannot be right.

Nothing is corrected here. A doubted cell keeps its printed value and says why it is doubted: tables show it
with a mark, comparisons leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from truepair_lab.paper.presets import METRICS

MARK = "†"

_TABLE_II = """
ml-100k  mf       bpr      .3900 .1301 .4143 .3363 .2164 .3967 .2724 .3298 .3962
ml-100k  mf       infonce  .4168 .1434 .4458 .3513 .2291 .4202 .2835 .3546 .4207
ml-100k  mf       dcl      .4081 .1388 .4324 .3452 .2266 .4095 .2793 .3497 .4118
ml-100k  mf       hcl      .4263 .1463 .4539 .3565 .2323 .4260 .2849 .3564 .4242
ml-100k  mf       dpl      .4348 .1523 .4643 .3635 .2379 .4356 .2914 .3588 .4338
ml-100k  lightgcn bpr      .3944 .1231 .4204 .3346 .2189 .4017 .2658 .3281 .3986
ml-100k  lightgcn infonce  .3924 .1343 .4209 .3349 .2183 .4006 .2679 .3289 .3976
ml-100k  lightgcn dcl      .3962 .1367 .4243 .3361 .2194 .4022 .2695 .3329 .4006
ml-100k  lightgcn hcl      .4197 .1461 .4501 .3458 .2256 .4188 .2802 .3446 .4182
ml-100k  lightgcn dpl      .4333 .1486 .4627 .3596 .2344 .4324 .2919 .3585 .4331
ml-1m    mf       bpr      .3929 .0922 .4142 .3411 .1520 .3836 .2839 .2370 .3680
ml-1m    mf       infonce  .4009 .0934 .4209 .3472 .1546 .3894 .2890 .2423 .3731
ml-1m    mf       dcl      .3820 .0879 .4003 .3339 .1478 .3728 .2821 .2358 .3605
ml-1m    mf       hcl      .4112 .0969 .4317 .3552 .1585 .3991 .2959 .2475 .3825
ml-1m    mf       dpl      .4212 .0998 .4407 .3624 .1625 .4071 .2991 .2518 .3891
ml-1m    lightgcn bpr      .3517 .0739 .3726 .2997 .1201 .3385 .2467 .1884 .3172
ml-1m    lightgcn infonce  .4121 .0986 .4386 .3590 .1594 .4041 .2979 .2482 .3869
ml-1m    lightgcn dcl      .4104 .0982 .4291 .3544 .1597 .3977 .2965 .2511 .3842
ml-1m    lightgcn hcl      .4107 .0948 .4300 .3514 .1542 .3950 .2916 .2413 .3775
ml-1m    lightgcn dpl      .4217 .1003 .4429 .3620 .1625 .1866 .2989 .2511 .3896
yahoo-r3 mf       bpr      .1417 .1052 .1587 .1064 .1573 .1641 .0768 .2259 .1913
yahoo-r3 mf       infonce  .1454 .1083 .1635 .1091 .1618 .1692 .0790 .2327 .1974
yahoo-r3 mf       dcl      .1429 .1065 .1615 .1080 .1601 .1664 .0786 .2316 .1952
yahoo-r3 mf       hcl      .1460 .1097 .1638 .1096 .1628 .1697 .0792 .2336 .1976
yahoo-r3 mf       dpl      .1491 .1091 .1652 .1108 .1641 .1712 .0801 .2351 .2012
yahoo-r3 lightgcn bpr      .1115 .0838 .01252 .0881 .1322 .1346 .0661 .1976 .1611
yahoo-r3 lightgcn infonce  .1456 .1092 .1642 .1089 .1622 .1697 .0790 .2333 .1982
yahoo-r3 lightgcn dcl      .1417 .1074 .1676 .1099 .1633 .1719 .0798 .2354 .2007
yahoo-r3 lightgcn hcl      .1412 .1139 .1718 .1130 .1683 .1776 .0812 .2394 .2059
yahoo-r3 lightgcn dpl      .1504 .1111 .1697 .1131 .1670 .1757 .0825 .2412 .2054
yelp2018 mf       bpr      .0398 .0228 .0435 .0339 .0389 .0456 .0284 .0650 .0538
yelp2018 mf       infonce  .0429 .0246 .0470 .0365 .0417 .0491 .0305 .0700 .0580
yelp2018 mf       dcl      .0486 .0278 .0531 .0410 .0466 .0552 .0342 .0777 .0648
yelp2018 mf       hcl      .0535 .0535 .0586 .0459 .0541 .0622 .0383 .0894 .0736
yelp2018 mf       dpl      .0543 .0325 .0595 .0463 .0551 .0630 .0389 .0914 .0749
yelp2018 lightgcn bpr      .0556 .0330 .0610 .0473 .0560 .0644 .0391 .0914 .0757
yelp2018 lightgcn infonce  .0553 .0329 .0607 .0473 .0558 .0642 .0390 .0911 .0754
yelp2018 lightgcn dcl      .0559 .0331 .0612 .0472 .0557 .0642 .0391 .0914 .0756
yelp2018 lightgcn hcl      .0563 .0335 .0617 .0477 .0564 .0648 .0393 .0920 .0760
yelp2018 lightgcn dpl      .0604 .0364 .0657 .0513 .0615 .0696 .0423 .1003 .0821
gowalla  mf       bpr      .0728 .0748 .1000 .0555 .1116 .1063 .0414 .1625 .1209
gowalla  mf       infonce  .0739 .0757 .1016 .0560 .1122 .1076 .0422 .1650 .1230
gowalla  mf       dcl      .0746 .0769 .1023 .0568 .1147 .1088 .0426 .1664 .1238
gowalla  mf       hcl      .0755 .0774 .1035 .0574 .1151 .1098 .0432 .1693 .1256
gowalla  mf       dpl      .0815 .0827 .1100 .0628 .1243 .1174 .0473 .1815 .1340
gowalla  lightgcn bpr      .0735 .0753 .1007 .0560 .1119 .1069 .0419 .1641 .1218
gowalla  lightgcn infonce  .0743 .0760 .1022 .0566 .1132 .1084 .0423 .1649 .1231
gowalla  lightgcn dcl      .0748 .0763 .1027 .0569 .1132 .1088 .0424 .1656 .1236
gowalla  lightgcn hcl      .0794 .0804 .1084 .0608 .1199 .1147 .0453 .1740 .1319
gowalla  lightgcn dpl      .0867 .0891 .1164 .0662 .1329 .1242 .0494 .1936 .1417
"""

# Its rows of BPR and DPL are those of Table II.
_TABLE_III = """
ml-100k  mf       bns      .4205 .1467 .4558 .3463 .2290 .4217 .2762 .3466 .4176
ml-100k  mf       dpl-hard .4401 .1579 .4692 .3713 .2407 .4395 .2940 .3592 .4351
ml-1m    mf       bns      .4207 .1062 .4324 .3518 .1703 .4191 .3045 .2614 .4002
ml-1m    mf       dpl-hard .4251 .1012 .4412 .3649 .1701 .4151 .3012 .2539 .3922
"""

# users, items, interactions, density
TABLE_I: dict[str, tuple[int, int, int, float]] = {
    "ml-100k": (943, 1_682, 100_000, 0.06304),
    "ml-1m": (6_040, 3_952, 1_000_000, 0.04189),
    "yahoo-r3": (5_400, 1_000, 182_000, 0.03370),
    "yelp2018": (31_668, 38_048, 1_561_406, 0.00130),
    "gowalla": (29_858, 40_981, 1_027_370, 0.00084),
}
"""The datasets as the paper counts them."""

COUNTS: dict[str, tuple[int, int, int]] = {
    "ml-100k": (943, 1_682, 100_000),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "yahoo-r3": (5_400, 1_000, 183_179),
    "yelp2018": (31_668, 38_048, 1_561_406),
    "gowalla": (29_858, 40_981, 1_027_370),
}
"""Users, items and interactions of the files that the runs were made with."""

Row = tuple[str, str, str]  # dataset, encoder, method


def _parsed(text: str) -> dict[Row, Mapping[str, float]]:
    rows = [line.split() for line in text.strip().splitlines()]
    return {(d, e, m): dict(zip(METRICS, map(float, values), strict=True)) for d, e, m, *values in rows}


TABLE_II = _parsed(_TABLE_II)
"""Five losses, two encoders, five datasets."""

TABLE_III = _parsed(_TABLE_III)
"""BNS, and DPL with hard samples."""

PUBLISHED: dict[Row, Mapping[str, float]] = TABLE_II | TABLE_III
"""All rows: (dataset, encoder, method) -> metric -> the printed value."""

_BNS = (
    "its precision at 10 is below DPL's while recall and NDCG at 10 are above: one of the three is wrong, "
    "and the paper does not say which"
)
DOUBTED: dict[tuple[str, str, str, str], str] = {
    ("ml-1m", "lightgcn", "dpl", "ndcg@10"): "less than half of NDCG@5 and NDCG@20 of the same row",
    ("yahoo-r3", "lightgcn", "bpr", "ndcg@5"): "a tenth of what the rest of the row allows: a zero too many",
    (
        "yelp2018",
        "mf",
        "hcl",
        "recall@5",
    ): "the same digits as the precision at 5, and above recall at 5 of DPL",
    ("yahoo-r3", "lightgcn", "dcl", "precision@5"): "too low for the NDCG@5 of the same row",
    ("yahoo-r3", "lightgcn", "hcl", "precision@5"): "too low for the NDCG@5 of the same row",
    ("ml-100k", "lightgcn", "bpr", "recall@5"): "too low for the precision and NDCG at 5 of the same row",
    ("ml-1m", "mf", "bns", "precision@10"): _BNS,
    ("ml-1m", "mf", "bns", "recall@10"): _BNS,
    ("ml-1m", "mf", "bns", "ndcg@10"): _BNS,
}
"""Cells that cannot be right, and why: (dataset, encoder, method, metric) -> reason."""

BARS = tuple((d, e) for d in ("ml-100k", "ml-1m", "gowalla", "yelp2018") for e in ("mf", "lightgcn"))
"""Where we are held against the paper: NDCG@20 of its DPL, by dataset and encoder."""

HARD_COUNTS = ("gowalla", "yelp2018")
"""Datasets on which our DPL with hard samples may meet the bar too; on the others DPL alone."""


class Printed(NamedTuple):
    """A value as the paper prints it, and why it is doubted, if it is."""

    value: float
    doubt: str | None

    @property
    def trusted(self) -> float | None:
        """The value for comparisons: None where it is doubted."""
        return self.value if self.doubt is None else None


def published(dataset: str, encoder: str, method: str, metric: str) -> Printed | None:
    """What the paper prints in this cell; None where it has no such cell.

    >>> published("ml-1m", "lightgcn", "dpl", "ndcg@20")
    Printed(value=0.3896, doubt=None)
    >>> published("ml-1m", "lightgcn", "dpl", "ndcg@10").trusted is None
    True
    """
    row = PUBLISHED.get((dataset, encoder, method))
    if row is None or metric not in row:
        return None
    return Printed(row[metric], DOUBTED.get((dataset, encoder, method, metric)))
