"""The report: a folder of lines -> docs/lab/paper.md and its figures.

Every number on the page is computed from a line, or printed in the paper. The same lines give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.figures import check_plots
from truepair.reporting.page import write_text
from truepair_lab.lines import Lines, read_lines
from truepair_lab.markdown import details, metric_name, table
from truepair_lab.paper.presets import ENCODERS, STUDIES
from truepair_lab.paper.report.ablation import ablation_tables
from truepair_lab.paper.report.bars import bars_table
from truepair_lab.paper.report.cells import study_of, swept
from truepair_lab.paper.report.claims import CLAIMS, OURS, THRESHOLDS, claims_table
from truepair_lab.paper.report.clean import clean_tables
from truepair_lab.paper.report.effort import effort_table
from truepair_lab.paper.report.figures import report_figures
from truepair_lab.paper.report.findings import advice, findings
from truepair_lab.paper.report.names import model_name, not_run
from truepair_lab.paper.report.tables import reproduction, tuned_table
from truepair_lab.paper.report.work import (
    data_table,
    session_table,
    settings_table,
    timing_table,
    versions_text,
)

LINES, PAGE, FIGURES = Path("results/paper"), Path("docs/lab/paper.md"), Path("docs/figures")
_LETTERS = {"M": "M", "N": "N", "tau": "τ"}


def rebuild_report(folder: Path = LINES, out: Path = PAGE, figures: Path | None = None) -> Path:
    """Read the lines of a folder and write the page; figures go beside it, in `figures/`, unless cells."""
    lines = read_lines(folder)
    if _is_empty(lines):
        found = f" ({len(lines.broken)} lines could not be read: {lines.broken[0]})" if lines.broken else ""
        raise InputError(f"{folder} holds no lines{found}; `truepair lab paper run` writes them.")
    return write_report(lines, out, out.parent / "figures" if figures is None else figures)


def write_report(lines: Lines, out: Path, figures: Path) -> Path:
    """Write the page to `out` and its figures into the folder `figures`, each whole or not at all."""
    check_plots()
    text = report_text(lines, Path(os.path.relpath(figures, out.parent)).as_posix())
    for name, figure in report_figures(lines).items():
        write_text(figures / name, figure.svg())
    return write_text(out, text)


def _is_empty(lines: Lines) -> bool:
    return not (lines.runs or lines.trials or lines.contrasts or lines.timings or lines.sessions)


def report_text(lines: Lines, figures: str = "figures") -> str:
    """The page as Markdown; `figures` is the way from it to the figures' folder."""
    if _is_empty(lines):
        raise InputError("there are no lines to report; `truepair lab paper run` writes them.")
    return "\n\n".join(_sections(lines, figures)) + "\n"


def _sections(lines: Lines, figures: str) -> Iterator[str]:
    drawn = {
        name: f"![{f.alt}]({figures}/{name})\n\n{f.caption}" for name, f in report_figures(lines).items()
    }

    def figure(name: str) -> list[str]:
        return [drawn[f"paper-{name}.svg"]] if f"paper-{name}.svg" in drawn else []

    yield _INTRODUCTION
    yield _joined("## Findings", _listed(findings(lines)))
    yield f"## Against the paper's best\n\n{bars_table(lines)}"
    yield _PROTOCOLS
    yield _joined("## Data and splits", data_table(lines), _SPLITS)
    yield _joined("## The paper's tables", _OPEN, *figure("published"), reproduction(lines))
    yield _joined("### Tuned settings, the paper's protocol", tuned_table(lines), settings_table(lines))
    yield _joined("## Clean runs", _CLEAN, *figure("clean"), clean_tables(lines))
    yield _joined("## M, N and τ", *(figure("sweep") or [not_run(["the sweeps"])]), _sweep_table(lines))
    yield _joined("## What each part of DPL brings", ablation_tables(lines))
    yield _joined("## Running time", *figure("time"), timing_table(lines))
    yield _joined("## The paper's claims", THRESHOLDS, claims_table(lines, CLAIMS))
    yield _joined("### Our own questions", _OPTIMISM, claims_table(lines, OURS))
    yield _joined("## What to use when", _ADVICE, _listed(advice(lines) or [not_run(["the clean runs"])]))
    yield _joined("## Effort", effort_table(lines))
    yield _joined("## Machines and wall-clock", session_table(lines), versions_text(lines))
    yield _joined(_REBUILD, *_notes(lines))


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _listed(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _sweep_table(lines: Lines) -> str:
    """The points of the figure."""
    study = study_of(lines, "sweep")
    rows = []
    for letter in _LETTERS:
        for encoder in ENCODERS:
            scores = {k: swept(study, letter, encoder, k) for k in ("precision@5", "ndcg@20")}
            ndcg = dict(scores["ndcg@20"])
            for x, mean in scores["precision@5"]:
                rows.append(
                    [
                        model_name(encoder, "dpl"),
                        f"{_LETTERS[letter]} = {x:g}",
                        mean.n,
                        mean,
                        ndcg.get(x, "–"),
                    ]
                )
    head = ["model", "", "seeds", metric_name("precision@5"), metric_name("ndcg@20")]
    return details("Every point", table(head, rows)) if rows else ""


def _notes(lines: Lines) -> list[str]:
    """What was left out, so that nothing is silent."""
    notes = []
    for name in STUDIES:
        left = {spot: cell.left_out for spot, cell in study_of(lines, name).cells.items() if cell.left_out}
        cells = [f"{spot[0]} {model_name(*spot[1:])} ({n})" for spot, n in left.items()]
        if cells:
            notes.append(
                f"Lines of other settings or splits that were left out of “{name}”: {', '.join(cells)}."
            )
    if lines.broken:
        notes.append(f"Lines that could not be read: {'; '.join(lines.broken)}.")
    return notes


_INTRODUCTION = """\
# The paper, run again

What happens when the experiments of the DPL paper are run again: with the authors' settings, with tuned
ones, and with every method tuned alike. Ours stands beside theirs, in numbers and in figures.

Every number here is computed from a line: one JSON object for each run, in `results/paper`. The paper's
own numbers are its Tables II and III as printed. This page is written by `truepair lab paper report`, never
by hand."""

_PROTOCOLS = """\
## Two protocols, never mixed

- **The paper's.** Train on the train part, look at the test part along the way, and report the best
  epoch for each metric separately. That is what was published, so that is what its numbers are compared
  with. It is optimistic: the test part chooses. Tables of this kind say so.
- **Clean.** A validation part is carved from train. Every method is searched by the same rule, and its
  settings and epoch are chosen by validation NDCG@20. Then each seed is trained on the whole train part
  and the test part is looked at once.

All rank the whole catalogue without the items of train, over users with at least one test item."""

_SPLITS = """\
The authors publish the split of MovieLens-100k; it is used as it is. The other splits are random, 80 to
20, as the paper describes them, from a fixed seed: they are not the authors' own."""

_OPEN = """\
Where the paper is silent, this was taken: with LightGCN the contrastive losses keep the N of MF, as with
one unlabelled item they would all be BPR; hard samples are soft weights over the unlabelled items,
without gradient through the weights; BNS estimates its distribution function within the batch; DCL and
HCL have the floor of their originals, N·e^{-1/t}, although that is for cosines; the test part is looked
at after every fifth epoch. The settings of every run are in its line, and below."""

_CLEAN = """\
Reference points (popularity, ItemKNN, EASE, iALS) draw no samples; they were searched on
the same validation part. Popularity has nothing to search, EASE one parameter: see the effort below."""

_OPTIMISM = """\
The best of several methods is picked by its test figures here, which favours it a little."""

_ADVICE = """\
By NDCG@20 of the clean runs alone. “Not surely worse” is by the comparisons over users where there is one,
else by the seeds' spread; what has neither is named as not compared."""

_REBUILD = """\
## How to rebuild

```sh
truepair lab paper run       # adds the lines that are missing
truepair lab paper report    # this page and its figures, from the lines alone
```

The same lines give the same page, byte for byte."""
