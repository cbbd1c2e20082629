"""Speed of training: samples a second, against the faster of the peers."""

from __future__ import annotations

from dataclasses import replace

import torch

from truepair.data.interactions import Interactions
from truepair.losses import BPR, DPL, Loss
from truepair.models.encoders import MF
from truepair_lab.benchmarks.outcome import Measure, Options, Outcome, Row, Skipped, alternate, medians
from truepair_lab.benchmarks.peers import EPOCHS
from truepair_lab.benchmarks.truepair_side import (
    DEFAULTS,
    FAST,
    SETTINGS,
    TAU,
    gowalla,
    movielens_1m,
    seconds_per_epoch,
    start,
)

# name: loss, M, N
LOSSES: dict[str, tuple[Loss, int, int]] = {"BPR": (BPR(), 0, 1), "DPL (10,10)": (DPL(tau=TAU), 10, 10)}
# The least ratio to the faster peer, by (data, engine, loss); what is not here has no bar.
BARS: dict[tuple[str, str, str], float] = {
    (data, FAST, loss): least
    for data in ("ML-1M d=32", "Gowalla d=64")
    for loss, least in (("BPR", 1.0), ("DPL (10,10)", 1 / 3.5))
}
REFERENCE = "reference"  # the specification is slow: some steps of an epoch are measured, and not all


def _steps(options: Options) -> int:
    return 3 if options.quick else 20


def training_speed(options: Options) -> Outcome:
    """An epoch of BPR and DPL: the engines, against BPR of implicit and Cornac."""
    outcome = Outcome(settings={"threads": torch.get_num_threads()})
    for name, load, dim in (("ML-1M", movielens_1m, 32), ("Gowalla", gowalla, 64)):
        options.say(f"loading {name}")
        compare_epochs(f"{name} d={dim}", load(options).train, dim, options, outcome)
    return outcome


def compare_epochs(data: str, train: Interactions, dim: int, options: Options, outcome: Outcome) -> None:
    """Alternate an epoch of each on one dataset, and add the rows to the outcome."""
    measures = _peers(train, dim, outcome) | _engines(train, dim, options, outcome)
    rounds = alternate(measures, options, f"{data}, ")
    outcome.rounds |= {f"{data}, {name}: seconds an epoch": figures for name, figures in rounds.items()}
    speed = {name: len(train) / seconds / 1e6 for name, seconds in medians(rounds).items()}
    peers = {name: speed[name] for name in EPOCHS if name in speed}
    peer = max(peers, key=peers.__getitem__, default=None)
    peer_value = None if peer is None else peers[peer]
    for name in speed:
        if name not in peers:
            engine, _, loss = name.partition(" ")
            bar = BARS.get((data, engine, loss)) if peer else None
            note = f"by {_steps(options)} steps" if engine == REFERENCE else ""
            row = Row(
                f"{data}, {loss}, engine {engine}", speed[name], "M samples/s", peer, peer_value, bar, True
            )
            outcome.rows.append(replace(row, note=note))


def _peers(train: Interactions, dim: int, outcome: Outcome) -> dict[str, Measure]:
    found = {}
    for name, epoch in EPOCHS.items():
        try:
            found[name] = epoch(train, dim, torch.get_num_threads())
        except Skipped as skipped:
            outcome.skipped.append(str(skipped))
    return found


def _engines(train: Interactions, dim: int, options: Options, outcome: Outcome) -> dict[str, Measure]:
    found = {}
    for engine in (FAST, REFERENCE):
        for name, (loss, m, n) in LOSSES.items():
            settings = replace(SETTINGS.get(engine, DEFAULTS), n_extra=m, n_unlabelled=n, seed=options.seed)
            steps = _steps(options) if engine == REFERENCE else None
            try:
                trainer = start(engine, train, MF(dim=dim), loss, settings)
            except Skipped as skipped:
                outcome.skipped.append(str(skipped))
                break
            found[f"{engine} {name}"] = seconds_per_epoch(trainer, settings.learning_rate, steps)
    return found
