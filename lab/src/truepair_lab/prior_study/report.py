"""The page of the study: a folder of lines -> docs/prior.md and its figures; the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.figures import check_plots
from truepair.reporting.page import write_text
from truepair_lab.markdown import joined, unread
from truepair_lab.prior_study import lines, words
from truepair_lab.prior_study.auto import SEEDS, SETUPS, SOURCES
from truepair_lab.prior_study.cases import STUDIES
from truepair_lab.prior_study.figures import figures_of
from truepair_lab.prior_study.groups import Group, groups_of
from truepair_lab.prior_study.tables import (
    auto_lines_of,
    auto_table,
    coat_table,
    estimates_csv,
    grid_table,
    summary_table,
    users_table,
    warning_table,
)
from truepair_lab.truth.coat import TWO_PRIORS

LINES, PAGE = Path("results/prior"), Path("docs/prior.md")
NOTHING = "Not run yet."


def rebuild(folder: Path = LINES, out: Path = PAGE) -> Path:
    """Write the page to `out` and its figures into `figures` beside it, from the lines of a folder."""
    check_plots()
    found, broken = lines.read(folder)
    if not found:
        raise InputError(f"{folder} holds no lines; `truepair-lab prior-study coat` writes some.")
    groups, small = groups_of(found), groups_of(found, small=True)
    figures = figures_of(groups, found)
    for name, (_, svg) in figures.items():
        write_text(out.parent / "figures" / name, svg)
    write_text(out.parent / "tables" / "prior-estimates.csv", estimates_csv([*groups, *small]))
    drawn = {name: f"![{about}](figures/{name})" for name, (about, _) in figures.items()}
    sections = [words.QUESTION, words.ANSWER.of(found), *_sections(groups, small, found, drawn)]
    return write_text(
        out, joined(*sections, words.REBUILD, _missing([*groups, *small], found), unread(broken)) + "\n"
    )


def _sections(
    groups: Sequence[Group], small: Sequence[Group], found: Sequence[lines.Line], drawn: Mapping[str, str]
) -> Iterator[str]:
    def figure(name: str) -> str:
        return drawn.get(name, NOTHING)

    yield joined(words.SUMMARY, summary_table(groups))
    yield words.METHOD
    yield joined(words.WORLDS, figure("prior-worlds.svg"))
    yield joined(words.BLOCKS, figure("prior-blocks.svg"))
    coat = [group for group in groups if group.study == "coat"]
    yield joined(words.COAT, *([coat_table(coat[0]), TWO_PRIORS] if coat else [NOTHING]))
    yield joined(words.WARNING, warning_table([*groups, *small]))
    users = users_table([group for group in groups if group.per_user("rank own") is not None])
    yield joined(words.USERS, figure("prior-users.svg"), users)
    yield joined(words.AUTO, figure("prior-auto.svg"), auto_table(found), grid_table(found))


def _missing(groups: Sequence[Group], found: Sequence[lines.Line]) -> str:
    """What is not run, or not to the end."""
    have = {name: sum(len(g.lines) for g in groups if g.study == name) for name in STUDIES}
    want = {name: len(list(study.places())) for name, study in STUDIES.items()}
    parts = [f"{name} ({have[name]} of {want[name]} cases)" for name in STUDIES if have[name] < want[name]]
    made = {name: sum(map(len, auto_lines_of(found, name).values())) for name in SETUPS}
    whole = len(SOURCES) * len(SEEDS)
    parts += [f"auto-{name} ({made[name]} of {whole} lines)" for name in SETUPS if made[name] < whole]
    return f"Not run, or not to the end: {', '.join(parts)}." if parts else ""
