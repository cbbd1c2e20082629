"""`truepair prior`: an estimate of the share of positives among unlabelled pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import truepair as tp
from truepair.cli.console import Console, aligned
from truepair.cli.options import Seed, SourceText, option
from truepair.cli.sources import Reading
from truepair.cli.table_files import check_output, format_of, write_table
from truepair.storage.types import Json

if TYPE_CHECKING:
    from truepair.prior import PriorEstimate

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class PriorOptions:
    """Options of `prior` alone."""

    plot: Path | None = option("Draw the methods' curves to this .svg or .png file.", callback=check_output)
    per_user: Path | None = option("Write each user's τ to .csv, .parquet or .jsonl.", callback=check_output)
    resamples: int = option("The number of bootstrap resamples for the interval.", default=100)
    seed: Seed = 0
    device: str = option("The device: auto, cpu, cuda.", default="auto")


def prior(source: SourceText, args: PriorOptions, reading: Reading, console: Console) -> None:
    """Estimate τ, the share of positives among unlabelled pairs.

    A short training without a fifth of the pairs shows how these score among the unlabelled pairs. If the
    observed pairs are a random sample of all positives, the interval covers τ. If popular items are observed
    more often, τ is probably higher, and nothing in the data shows it. lab/docs/prior.md measures the
    accuracy on data with known labels.

    Example:
      truepair prior ml-100k --plot prior.svg --per-user tau.csv
    """
    import pyarrow as pa

    if args.plot is not None:
        from truepair.reporting.prior_figure import check_plot, draw_prior

        check_plot(args.plot)
    format = None if args.per_user is None else format_of(args.per_user)
    pairs = reading.read(source, console)
    found = tp.estimate_prior(
        pairs, resamples=args.resamples, seed=args.seed, device=args.device, progress=not console.quiet
    )
    if args.plot is not None:
        draw_prior(found, args.plot)
    if args.per_user is not None and format is not None:
        table = pa.table({"user": pairs.user_ids.ids, "tau": found.user_tau})
        write_table([table], args.per_user, format)
    files = {"plot": args.plot, "per_user": args.per_user}
    written = [f"written: {path}" for path in files.values() if path is not None]
    console.give("\n".join([_text(found), *written]), _facts(found) | files)


def _text(found: PriorEstimate) -> str:
    """The verdict, the methods, the spread over users, and the facts behind them."""
    from truepair.prior import LEVEL, METHODS

    recommended = "the plateau's number" if found.has_plateau else "half of DEDPUL's number"
    rows = {"recommended": (found.tau, recommended)}
    rows |= {name: (tau, METHODS[name]) for name, tau in found.methods.items()}
    interval = {"recommended": f"{found.low:.3g} to {found.high:.3g}"}
    methods = [
        {
            "method": name,
            "τ": f"{tau:.3g}",
            f"{LEVEL:.0%} interval": interval.get(name, "-"),
            "what it is": what,
        }
        for name, (tau, what) in rows.items()
    ]
    users = ", ".join(f"{share} {tau:.3g}" for share, tau in _spread(found).items())
    facts = [
        f"each user's own τ, by share of users: {users}",
        f"positive, observed or not: {found.positive:.3%} of all pairs (the class prior)",
        f"observed: {found.observed:.3%} of all pairs",
        f"separation: {found.separation:.3f}, the chance that a held-out positive scores above an "
        "unlabelled pair",
    ]
    return "\n".join([found.verdict, "", aligned(methods), "", *facts])


def _spread(found: PriorEstimate) -> dict[str, float]:
    import numpy as np

    values = np.quantile(found.user_tau, QUANTILES)
    return {f"{share:.0%}": float(tau) for share, tau in zip(QUANTILES, values, strict=True)}


def _facts(found: PriorEstimate) -> Json:
    from truepair.prior import LEVEL

    named = ("tau", "low", "high", "positive", "methods", "separation", "observed", "has_plateau", "verdict")
    return {name: getattr(found, name) for name in named} | {"level": LEVEL, "users": _spread(found)}
