"""Conclusions: what the lines say, in plain words; each sentence is computed, and may be uncomfortable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from truepair_lab.statistics import Mean
from truepair_lab.truth import coat
from truepair_lab.truth.report.summary import BASELINE, NDCG, Setting, title
from truepair_lab.truth.treatments import TREATMENTS

_WRONG = {"dpl-tau-0": "0", "dpl-tau-half": "½", "dpl": "1", "dpl-tau-2": "2", "dpl-tau-5": "5"}


def conclusions(settings: Sequence[Setting]) -> list[str]:
    """Those for which there are lines."""
    sentences = [
        _closed(settings),
        _against("dpl", BASELINE, "DPL against BPR", settings),
        _best(settings),
        _against(
            "dpl", "dpl-tau-0", "What the correction itself brings: DPL against DPL with τ = 0", settings
        ),
        _against("dpl-half", "dpl", "½ in place of the extra positives against DPL", settings),
        _against("dpl-user", "dpl", "Each user's own τ against one τ for all", settings),
        _wrong(settings),
        _bias(settings),
        _gradient(settings),
        _draws(settings),
        _ceiling(settings),
    ]
    return [sentence for sentence in sentences if sentence]


def edge_words(settings: Sequence[Setting]) -> str:
    """Which weight decays lie at an end of the grid, so that a wider one might have served better."""
    known = {s.title: [(name, edge) for name in s.by_name if (edge := s.edge(name))] for s in settings}
    told = [
        f"{where} {', '.join(f'{title(name)} ({edge})' for name, edge in found)}"
        for where, found in known.items()
        if found
    ]
    return (
        "**At an end of the weight decays that were tried** lies the one that was chosen on "
        f"{'; '.join(told)}. A wider grid might serve these better."
        if told
        else "No weight decay that was chosen lies at an end of those that were tried."
    )


def coat_words(settings: Sequence[Setting]) -> str:
    """Why docs/lab/prior.md has another τ for Coat; empty without a line of it."""
    found = [setting for setting in settings if setting.case == "coat"]
    return coat.tau_words(found[0].lines[0].tau, found[0].observed) if found else ""


def _closed(settings: Sequence[Setting]) -> str:
    found = [(setting.title, setting.closed("dpl")) for setting in settings]
    told = [f"{name} {round(100 * closed.value)}%" for name, closed in found if closed is not None]
    return (
        f"**Of the way from BPR to a fully supervised model**, DPL with the true τ goes: {'; '.join(told)}."
        if told
        else ""
    )


def _against(a: str, b: str, what: str, settings: Sequence[Setting]) -> str:
    """One difference of NDCG@20 on every setting, and whether it is sure."""
    each = [(setting.title, setting.difference(a, b)) for setting in settings]
    found = [(name, mean) for name, mean in each if mean is not None]
    better = sum(mean.is_significant and mean.value > 0 for _, mean in found)
    worse = sum(mean.is_significant and mean.value < 0 for _, mean in found)
    counts = f"surely better on {better} of {len(found)}, surely worse on {worse}"
    told = [f"{name} {_difference(mean)}" for name, mean in found]
    return f"**{what}**, by NDCG@20: {counts}. {'; '.join(told)}." if told else ""


def _difference(mean: Mean) -> str:
    return mean.text(sign=True) + ("" if mean.is_significant else " (not sure)")


def _best(settings: Sequence[Setting]) -> str:
    told = []
    for setting in settings:
        means = {name: setting.mean(name) for name in TREATMENTS}
        able = {name: mean.value for name, mean in means.items() if mean is not None}
        if len(able) < 2:
            continue
        best = max(able, key=lambda name: able[name])
        closed = setting.closed(best)
        share = "" if closed is None else f", {round(100 * closed.value)}% of the way"
        told.append(f"{setting.title} {title(best)} ({able[best]:.4f}; BPR {able[BASELINE]:.4f}{share})")
    return (
        f"**The highest NDCG@20 without labels**, picked by the truth itself: {'; '.join(told)}."
        if told
        else ""
    )


def _wrong(settings: Sequence[Setting]) -> str:
    told = []
    for setting in settings:
        means = {factor: setting.mean(name, NDCG) for name, factor in _WRONG.items()}
        able = {factor: mean.value for factor, mean in means.items() if mean is not None}
        if len(able) == len(_WRONG):
            best = max(able, key=lambda factor: able[factor])
            worst = min(able, key=lambda factor: able[factor])
            told.append(
                f"{setting.title} best at {best} times the true τ ({able[best]:.4f}), "
                f"worst at {worst} ({able[worst]:.4f})"
            )
    return f"**A wrong τ**: DPL is, on {'; '.join(told)}." if told else ""


def _bias(settings: Sequence[Setting]) -> str:
    told = list(
        _probed(settings, "dpl", ("p plain bias", "p bias", "p plain spread", "p spread"), _bias_words)
    )
    return f"**The estimate** itself, at DPL's best epoch: {'; '.join(told)}." if told else ""


def _bias_words(plain: float, own: float, plain_spread: float, spread: float) -> str:
    return f"bias {plain:+.3f} becomes {own:+.3f}, and a row's spread {plain_spread:.3f} becomes {spread:.3f}"


def _gradient(settings: Sequence[Setting]) -> str:
    told = []
    for setting in settings:
        found = [setting.probe(name, "cosine") for name in (BASELINE, "dpl")]
        if all(mean is not None for mean in found):
            bpr, dpl = (mean.value for mean in found if mean is not None)
            told.append(f"{setting.title} {bpr:.3f} for BPR, {dpl:.3f} for DPL")
    return (
        f"**The gradient**: cosine of the training gradient with the supervised one, {'; '.join(told)}."
        if told
        else ""
    )


def _draws(settings: Sequence[Setting]) -> str:
    measures = tuple(f"share {name}" for name in ("uniform", "popularity", "dns", "bns"))
    told = list(_probed(settings, BASELINE, measures, _draws_words))
    return (
        f"**The draws**: of what samplers draw as unlabelled, in truth positive are, on {'; '.join(told)}."
        if told
        else ""
    )


def _draws_words(uniform: float, popularity: float, dns: float, bns: float) -> str:
    return f"{uniform:.0%} of uniform, {popularity:.0%} by popularity, {dns:.0%} with DNS, {bns:.0%} with BNS"


def _probed(
    settings: Sequence[Setting], name: str, measures: Sequence[str], words: Callable[..., str]
) -> Iterator[str]:
    for setting in settings:
        found = [setting.probe(name, measure) for measure in measures]
        values = [mean.value for mean in found if mean is not None]
        if len(values) == len(measures):
            yield f"{setting.title}: {words(*values)}"


def _ceiling(settings: Sequence[Setting]) -> str:
    """How much of the whole distance clean draws are worth."""
    found = [(setting.title, setting.closed("clean-draws")) for setting in settings]
    told = [f"{name} {round(100 * closed.value)}%" for name, closed in found if closed is not None]
    if not told:
        return ""
    return (
        f"**True negatives alone**, with no new anchor, go this share of the way: {'; '.join(told)}. They "
        "tell which pair is which; a prior only tells how many there are."
    )
