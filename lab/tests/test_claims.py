"""../docs/claims.md: each number of the README and the docs stands where the page says, and in its source."""

import itertools
import json
import re
import runpy
from pathlib import Path

import pytest
import tables

import truepair as tp
from truepair.data.datasets.loading import load, load_split
from truepair.data.datasets.registry import DATASETS
from truepair.evaluation.metrics import CATALOGUE_METRICS, METRICS
from truepair.search.plan import FIRST_PLACE, FIRST_POPULARITY, Point, climb
from truepair_lab.benchmarks import BENCHMARKS
from truepair_lab.markdown import short

LAB = Path(__file__).parents[1]
ROOT, RESULTS = LAB.parent, LAB / "results"
CLAIMS = LAB / "docs" / "claims.md"


def read(path):
    return path.read_text(encoding="utf-8")


def flat(text):
    """Without line breaks."""
    return re.sub(r"\s+", " ", text)


def sections(page):
    """The text of each section by its name in links; "" is what comes before the first second heading."""
    without_code = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    first, *others = re.split(r"^##+ ", without_code, flags=re.MULTILINE)
    named = {"": first}
    for other in others:
        title = other.partition("\n")[0]
        named[re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")] = other
    return named


def section_of(link):
    path, _, name = link.partition("#")
    return flat(sections(read((CLAIMS.parent / path).resolve()))[name])


def numbers(texts):
    """(number, decimals) of each number; not those in names such as MovieLens-100k."""
    found = re.findall(r"(?<![\w.@-])(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?![\w-]*[A-Za-z]\w*-)", " ".join(texts))
    return [(float(text.replace(",", "")), len(text.partition(".")[2])) for text in found]


def quoted(text):
    return [quote.replace(r"\|", "|") for quote in re.findall(r"`([^`]*)`", text)]


ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in read(CLAIMS).splitlines()
    if line.startswith("| [")
]
SOURCE = re.compile(r"\[([^\]]*)\]\(([^)]*)\)([^\[]*)")


def is_same(number, value):
    return abs(number[0] - value) <= 0.5 * 10 ** -number[1] + 1e-9


def value_at(facts, place):
    """The number at "a / b / 0 · 1e-9" of a JSON file."""
    place, _, factor = place.partition(" · ")
    for key in place.split(" / "):
        facts = facts[int(key)] if isinstance(facts, list) else facts[key]
    return facts * float(factor or 1)


def check_once(link, source):
    """A command that exists, and the day: both are on the page."""
    page = read((CLAIMS.parent / link.partition("#")[0]).resolve())
    day = re.search(r"\d{4}-\d\d-\d\d", source)
    assert day is None or day[0] in page
    for command in quoted(source):
        if command.startswith("make "):
            assert f"\n{command.split()[1]}:" in read(ROOT / "Makefile")
        elif command.startswith("truepair-lab bench "):
            assert set(command.split()[2:]) <= set(BENCHMARKS)
        else:
            assert (ROOT / command).exists(), command
        assert command in flat(page), command


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", f"{row[0]} {row[1]}")[:60])
def test_each_number_stands_on_the_page_and_in_its_source(row):
    where, says, source = row
    link, quotes = SOURCE.search(where)[2], quoted(says)
    text, known = section_of(link), []
    assert quotes
    for quote in quotes:
        assert quote in text
    if source.startswith("once: "):
        check_once(link, source)
        return
    for name, target, rest in SOURCE.findall(source):
        path = (CLAIMS.parent / target.partition("#")[0]).resolve()
        if name.startswith("test_"):
            assert f"\ndef {name}(" in read(path)
            continue
        if path.suffix == ".json":
            values = [value_at(json.loads(read(path)), place) for place in quoted(rest)]
            assert len(values) == len(numbers(quotes))
            assert all(map(is_same, numbers(quotes), values)), list(zip(numbers(quotes), values, strict=True))
            return
        within = section_of(target) if path.suffix == ".md" and "#" in target else flat(read(path))
        for quote in quoted(rest):
            assert quote in within
        known += numbers(quoted(rest))
    for number in numbers(quotes) if known else ():
        assert any(is_same(number, value) for value, _ in known), number


LIMITS = {
    ("automatic.md", ""): "options",
    ("reference.md", "statistics"): "a definition",
    ("reference.md", "training"): "defaults",
    ("scale.md", "one-device-large-data"): "error texts",
    ("prepare.md", "memory-disk-and-interruptions"): "options",
    ("scale.md", "what-it-has-and-what-not"): "error texts",
    ("serving.md", "limits"): "limits",
    ("serving.md", "automatic-retraining"): "options",
    ("troubleshooting.md", "it-is-slow"): "advice",
    ("cold-items.md", ""): "options",
}
"""Sections whose numbers are not measured."""
FIGURE = re.compile(r"(?<![\w.])\.\d{3,4}\b|\b\d[\d.,]* ?(?:s|ms|GB|MB|MiB)\b(?=[ |.,;:)])(?! /)|% \|")


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_every_section_with_measured_figures_has_a_source(page):
    if page.name in ("api.md", "decisions.md"):  # docstrings; decisions.md has one row for all of it
        return
    links = {SOURCE.search(row[0])[2] for row in ROWS}
    sourced = {link.partition("#")[2] for link in links if Path(link.partition("#")[0]).name == page.name}
    for name, text in sections(read(page)).items():
        if FIGURE.search(text) and (page.name, name) not in LIMITS:
            assert name in sourced, (page.name, name, FIGURE.findall(text)[:5])


# --- numbers that are computed again ---------------------------------------------------------------------


def rows_of(page, *sections_of_it):
    """The cells of each row of the tables of these sections."""
    text = "\n".join(sections(read(page))[name] for name in sections_of_it)
    return [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]


def test_datasets_and_metrics():
    files = {name.removesuffix("-paper-split").removesuffix("-sequences") for name in DATASETS}
    downloaded = [data for data in DATASETS.values() if data.sources]
    assert (len(DATASETS), len(files), len(downloaded)) == (13, 11, 9)
    for data in downloaded:
        checked = [
            getattr(source, "sha256", None) or getattr(source, "table_sha256", None)
            for source in data.sources
        ]
        assert any(checked) or all(file.sha256 for file in data.files if not file.optional), data.name
    assert len(METRICS) + len(CATALOGUE_METRICS) == 9


def test_matrices_of_ease():
    one = 4 * 41_000**2 / 1e9
    assert (round(3 * one), round(one)) == (20, 7)


def test_the_billion():
    facts = json.loads(read(RESULTS / "scale" / "billion.json"))
    epochs = facts["train"]["epochs"]
    assert {round(epoch["seconds"]) for epoch in epochs[1:]} == {14}
    within = sum(epoch["seconds"] + epoch["seconds of evaluation"] for epoch in epochs)
    begun, ended = (
        float(re.match(r"\[([\d.]+) s\]", line)[1])
        for line in (facts["fit"]["remarks"][-3:])
        if "engine: full" in line or "epoch 8/8" in line
    )
    training = ended - begun
    assert (training - (facts["train"]["seconds"] - within)) / 8 < 31
    assert round(facts["fit"]["automatic"]["seconds"] / (training / 8)) == 9


def test_the_times_of_automatic_settings():
    times = [row for row in rows_of(LAB / "docs" / "plain.md", "time") if row[5].endswith(" x")]
    multiples = [float(row[5].removesuffix(" x")) for row in times]
    said = flat(sections(read(ROOT / "docs" / "automatic.md"))["what-it-costs"])
    assert f"{min(multiples)} to {max(multiples)} times their final fit in the {len(multiples)} cases" in said
    assert f"more than 4 times in {sum(one > 4 for one in multiples)} of them" in said


GRIDS = [json.loads(line) for line in read(RESULTS / "automatic" / "short-runs.jsonl").splitlines()]
TITLES = {
    "ml-100k": "MovieLens-100k",
    "ml-1m": "MovieLens-1M",
    "gowalla": "Gowalla",
    "yelp2018": "Yelp2018",
    "kuairec": "KuaiRec",
    "coat": "Coat",
    "jester": "Jester",
    "world-sparse": "World, density .005",
    "world-medium": "World, density .02",
    "world-dense": "World, density .08",
}


def test_climbs_and_long_runs():
    page = ROOT / "docs" / "automatic.md"
    shown = {row[0]: row[1:] for row in rows_of(page, "what-it-rests-on")}
    assert len(GRIDS) == 18
    for grid in GRIDS:
        places = itertools.product(grid["places"], grid["popularities"])
        measured = dict(zip(places, itertools.chain(*grid["scores"]), strict=True))
        cells = []
        for popularity in (0.4, FIRST_POPULARITY):
            found = {}

            def run(points, measured=measured, found=found):
                found.update({point: measured[point.place, point.popularity] for point in points})

            first = Point(FIRST_PLACE, popularity, grid["dim"], grid["epochs"])
            top = climb(first, ("temperature", "popularity"), 9, run, found)
            cells += [f"{1 - found[top] / max(measured.values()):.1%}", str(len(found))]
        assert shown[f"{TITLES[grid['case']]}, {grid['seed']}"] == cells
    said = flat(sections(read(page))["what-it-rests-on"])
    for case, words in (("ml-1m", ""), ("gowalla", "from "), ("yelp2018", "from ")):
        grid = next(grid for grid in GRIDS if (grid["case"], grid["seed"]) == (case, 0))
        first, lower = (run["score"] for run in grid["long"] if run["dim"] == 512)
        assert f"{words}{short(first)} to {short(lower)} on {TITLES[case]}" in said
    widths = [[run["score"] for run in g["long"] if run["dim"] in (64, 512)] for g in GRIDS]
    of = dict(zip([(grid["case"], grid["seed"]) for grid in GRIDS], widths, strict=True))
    gowalla, yelp = ([short(of[case, 0][at]) for at in (3, 1)] for case in ("gowalla", "yelp2018"))
    assert f"want 512 ({gowalla[0]} and {yelp[0]}, {gowalla[1]} and {yelp[1]} with 64)" in said


COLD = {
    "random given": "random",
    "popular given": "popularity (cold items have 0)",
    "mf mean": "MF, without features",
    "bpr sum": "BPR, uniform, dot product, Σ (LightFM's way)",
    "dns sum": "the same with DNS",
    "mf map": "MF and map",
    "hybrid sum": "Hybrid, full softmax, Σ",
    "hybrid map": "Hybrid, full softmax, map",
}


@pytest.mark.parametrize(("case", "at"), [("ml-100k", 0), ("ml-1m", 1)])
def test_cold_items(case, at, capsys):
    path = RESULTS / "cold" / f"{case}.jsonl"
    runpy.run_path(str(LAB / "benchmarks" / "cold_items.py"))["show"](path)
    lines = capsys.readouterr().out.splitlines()
    shown = rows_of(ROOT / "docs" / "cold-items.md", "what-it-gains")
    for key, title in COLD.items():
        printed = [line for line in lines if line.startswith(key)]
        rows = [[cell.replace("**", "") for cell in row] for row in shown if row[0] == title]
        if not printed:
            assert (key, case, len(rows)) == ("dns sum", "ml-1m", 1)
            continue
        pairs = re.findall(r"(\d\.\d{4}) ±(\d\.\d{3})", printed[0])
        means = [float(mean) for mean, _ in pairs]
        cells = [f"{short(means[0], 3)} ± {short(float(pairs[0][1]), 3)}", short(means[1], 3)]
        cells += [short(mean) if mean else "0" for mean in means[2:]]
        assert rows[at if len(rows) > 1 else 0][1:] == cells
    for run in map(json.loads, read(path).splitlines()):
        if run["phase"] == "levels":
            measured = [run["levels"][level] for level in ("0", "0.75", "0.9", "0.97")]
            measured.insert(1, run["map"])
            cells = [
                [short(one[key]) for key in ("all ndcg", "all recall", "mixed ndcg")] for one in measured
            ]
            assert [row[1:] for row in shown[-5:]] == cells
    ndcg = {line[:18].strip(): float(line.split()[2]) for line in lines if " ±" in line}
    times = f"{ndcg['hybrid map'] / ndcg['random given']:.1f}"
    said = flat(sections(read(ROOT / "docs" / "cold-items.md"))["what-it-gains"])
    assert f"{times} " in said.partition("themselves ")[2].partition("times as well")[0]


def test_prepare():
    runs = json.loads(read(RESULTS / "scale" / "prepare.json"))["runs"]
    found = {(run["ids"], run["rows"]): run for run in runs if run["what"] == "prepare"}
    rows = rows_of(ROOT / "docs" / "prepare.md", "measured")[2:]
    keys = [(ids, 10**power) for ids in ("integers", "text") for power in (6, 7, 8)]
    assert len(rows) == len(keys)
    for (ids, power), row in zip(keys, rows, strict=True):
        run = found[ids, power]
        most = run["most disk bytes"]
        assert row[2:] == [
            f"{run['seconds']:.1f}",
            f"{run['cpu seconds']:.1f}",
            f"{run['peak bytes'] / 1e9:.2f} GB",
            f"{run['folder bytes'] / 1e6:.0f} MB",
            f"{most / 1e9:.1f} GB" if most > 1e9 else f"{most / 1e6:.0f} MB",
        ]
    for ids in ("integers", "text"):  # "CPU seconds grow 11 times"
        assert round(found[ids, 10**8]["cpu seconds"] / found[ids, 10**7]["cpu seconds"]) == 11


def test_the_tables_of_als():
    page = read(ROOT / "docs" / "scale.md")
    sizes = [json.loads(read(RESULTS / "scale" / f"peers-1e{power}.json")) for power in (6, 7, 8)]
    assert tables.rebuilt(page, sizes) == page
    rows = [
        row
        for row in rows_of(ROOT / "docs" / "scale.md", "against-als-at-scale")
        if " iterations" in row[0] or "epochs" in row[0]
    ]
    until = [float(row[5].removesuffix(" s")) for row in rows]
    ends = [float(row[3]) for row in rows]
    own, spark = ([until[at + k] / until[at + 1] for at in (0, 3, 6)] for k in (0, 2))
    said = flat(sections(page)["against-als-at-scale"])
    assert (
        f"takes {own[0]:.1f} times as long at 10⁶ pairs, {own[1]:.1f} times at 10⁷ and {own[2]:.1f} times"
        in said
    )
    assert f"Spark {spark[0]:.0f}, {spark[1]:.0f} and {spark[2]:.1f} times" in said
    above = [f"{ends[at] / ends[at + 1] - 1:.0%}" for at in (3, 6)]
    assert f"highest at 10⁷ and 10⁸, {above[0]} and {above[1]} above implicit" in said
    assert f"is {short(100 * (ends[1] / ends[0] - 1), 1)}% above it" in said


@pytest.mark.long
def test_evaluation_of_users_without_history(real_data):
    shown = {row[0]: row[1:] for row in rows_of(ROOT / "docs" / "evaluation.md", "users-without-history")}
    split = tp.split_temporal(load("ml-100k", real_data), test=0.2)
    found = {}
    for name, options in (
        ("`auto=False`", {"auto": False}),
        ("EASE", {"encoder": "ease"}),
        ("popularity", {"encoder": "popular"}),
    ):
        model = tp.Recommender(**options).fit(split)
        every, alone = model.evaluate(split), model.evaluate(split, cold="separate")
        groups = every.groups.values()
        assert [group["users"] for group in groups] == [109, 192]
        own, popular = (group["ndcg@20"] for group in groups)
        by_model = tp.evaluate(model.matrices(), split, cold="model").mean("ndcg@20")
        vectors = (301 * by_model - 109 * own) / 192
        means = own, vectors, popular, every.mean("ndcg@20")
        assert shown[name] == [short(mean) for mean in means]
        found[name] = alone
    gap = tp.compare(found["`auto=False`"], found["EASE"], "ndcg@20")
    assert (f"{gap.difference:.4f}", f"{gap.p_value:.2f}") == ("-0.0024", "0.59")


@pytest.mark.long
def test_evaluation_of_judged_candidates(real_data):
    split = load_split("coat", real_data)
    likes = split.train.take(split.train.rating >= 4)
    judged = split.test.to_table().to_pandas()
    judged["label"] = judged.rating >= 4
    shown = {row[0]: row[1:] for row in rows_of(ROOT / "docs" / "evaluation.md", "judged-candidates")}
    for encoder, name in (("mf", "`mf`, the default"), ("ease", "`ease`"), ("popular", "`popular`")):
        model = tp.Recommender(encoder=encoder, auto=False).fit(likes)
        found = model.evaluate(candidates=judged[["user", "item", "label"]], ks=(5,))
        assert shown[name] == [short(found.mean(metric)) for metric in ("ndcg@5", "recall@5", "auc")]
