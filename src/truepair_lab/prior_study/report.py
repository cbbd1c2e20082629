"""The page of the study: a folder of lines -> docs/lab/prior.md and its figures; the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.figures import check_plots
from truepair.reporting.page import write_text
from truepair_lab.prior_study import lines, words
from truepair_lab.prior_study.auto import SEEDS, SETUPS, SOURCES
from truepair_lab.prior_study.cases import STUDIES
from truepair_lab.prior_study.conclusions import coat_words, conclusions
from truepair_lab.prior_study.figures import figures_of
from truepair_lab.prior_study.groups import BLOCKS, WORLDS, Group, groups_of
from truepair_lab.prior_study.tables import (
    auto_lines_of,
    auto_table,
    coat_table,
    estimates_table,
    grid_table,
    users_table,
)

LINES, PAGE = Path("results/prior"), Path("docs/lab/prior.md")
NOTHING = "Not run yet."


def rebuild(folder: Path = LINES, out: Path = PAGE) -> Path:
    """Write the page to `out` and its figures into `figures` beside it, from the lines of a folder."""
    check_plots()
    found, broken = lines.read(folder)
    if not found:
        raise InputError(f"{folder} holds no lines; `truepair lab prior-study coat` writes some.")
    groups = groups_of(found)
    figures = figures_of(groups, found)
    for name, (_, svg) in figures.items():
        write_text(out.parent / "figures" / name, svg)
    about = {name: told for name, (told, _) in figures.items()}
    return write_text(out, "\n\n".join(_sections(groups, found, about)) + "\n")


def _sections(groups: Sequence[Group], found: Sequence[lines.Line], about: dict[str, str]) -> Iterator[str]:
    def figure(name: str) -> str:
        return f"![{about[name]}](figures/{name})" if name in about else NOTHING

    def table(studies: Sequence[str], level: str) -> str:
        own = [group for group in groups if group.study in studies]
        return estimates_table(own, level) if own else NOTHING

    yield words.INTRODUCTION
    yield words.ADVICE
    yield "## What was found\n\n" + "\n".join(f"- {told}" for told in conclusions(groups, found))
    yield "\n\n".join([words.WORLDS, figure("prior-worlds.svg"), table(WORLDS, "τ asked")])
    yield "\n\n".join([words.BLOCKS, figure("prior-blocks.svg"), table(BLOCKS, "hidden")])
    coat = [group for group in groups if group.study == "coat"]
    yield "\n\n".join([words.COAT, *([coat_table(coat[0]), coat_words(coat[0])] if coat else [NOTHING])])
    users = users_table([group for group in groups if group.per_user("rank own") is not None])
    yield "\n\n".join([words.USERS, figure("prior-users.svg"), users])
    parts = [words.AUTO, figure("prior-auto.svg"), auto_table(found), grid_table(found)]
    yield "\n\n".join(filter(None, parts))
    yield words.REBUILD + "\n\n" + _missing(groups, found)


def _missing(groups: Sequence[Group], found: Sequence[lines.Line]) -> str:
    """What is not run, or not to the end."""
    have = {name: sum(len(g.lines) for g in groups if g.study == name) for name in STUDIES}
    want = {name: len(list(study.places())) for name, study in STUDIES.items()}
    told = [f"{name} ({have[name]} of {want[name]} cases)" for name in STUDIES if have[name] < want[name]]
    made = {name: sum(map(len, auto_lines_of(found, name).values())) for name in SETUPS}
    whole = len(SOURCES) * len(SEEDS)
    told += [f"auto-{name} ({made[name]} of {whole} lines)" for name in SETUPS if made[name] < whole]
    return f"Not run, or not to the end: {', '.join(told)}." if told else "Everything here is run."
