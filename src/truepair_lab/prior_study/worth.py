"""What each user's own τ is worth, in sentences made of the lines."""

from __future__ import annotations

from collections.abc import Sequence

from truepair_lab.prior_study.groups import Group


def rank_words(groups: Sequence[Group]) -> str:
    """Which users have more hidden, against what their counts say."""
    known = [(group.title, group.per_user("rank own"), group.per_user("rank density")) for group in groups]
    each = [
        f"{title} {own:.2f} against {counts:.2f}"
        for title, own, counts in known
        if own is not None and counts is not None
    ]
    return (
        "**Each user's own τ**: rank correlation with the users' true priors, against that of plain counts: "
        f"{'; '.join(each)}."
        if each
        else ""
    )


def error_words(groups: Sequence[Group]) -> str:
    """How near each user's own τ is, against simpler answers."""
    known = [group for group in groups if group.per_user("error own") is not None]
    if not known:
        return ""
    wins = {
        name: sum((g.per_user("error own") or 0.0) < (g.per_user(f"error {name}") or 0.0) for g in known)
        for name in ("one", "scaled", "density")
    }
    return (
        f"**As numbers**, each user's own τ has a lower mean error than one estimated τ for all in "
        f"{wins['one']} of {len(known)} settings, than plain counts in {wins['density']}, and than counts "
        f"scaled to the estimated τ in {wins['scaled']}. Where the level is wrong, so is everybody's."
    )
