"""`truepair prepare`: a source -> a folder of memory-mapped arrays, from which all commands start at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import truepair as tp
from truepair.cli.console import Console
from truepair.cli.options import Seed, SourceText, option, refuse
from truepair.cli.sources import Reading, described, find_source
from truepair.data.sources.sql_urls import check_no_url, without_password
from truepair.errors import InputError
from truepair.storage.types import Json


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Options of `prepare` alone."""

    output: Path | None = option("The folder to make. It must not exist.", "--output", "-o")
    memory: str = option("About how much memory may be used: 4GB, 800MB.", default="4GB", metavar="SIZE")
    temp: Path | None = option("A folder for what does not fit into memory. [default: beside --output]")
    test: float | None = option("Hold out a random share as the test part.", metavar="SHARE")
    valid: float = option("Hold out a random share of the rest for validation.", default=0.0, metavar="SHARE")
    seed: Seed = 0
    verify: bool = option("Compare the prepared folder SOURCE with its checksums.", "--verify", default=False)


def prepare(source: SourceText, args: PrepareOptions, reading: Reading, console: Console) -> None:
    """Prepare data once: distinct interactions as memory-mapped arrays.

    The folder replaces SOURCE in all other commands, which open it in milliseconds. The data need not fit
    into memory. The folder appears whole or not at all. After Ctrl-C or a kill, the same command goes on from
    the last finished step.

    Example:
      truepair prepare clicks/ -o clicks.prepared --memory 4GB --test 0.2
      truepair fit clicks.prepared -o model.truepair --test given
    """
    if args.verify:
        refuse({"--output": args.output, "--test": args.test}, "with --verify")
        found = tp.open_prepared(source, verify=True)
        console.give(f"{described(found)}\n{source} is as it was written", _facts(found, source))
        return
    if args.output is None:
        raise InputError("--output is missing; name the folder to make: -o FOLDER.")
    check_no_url(args.output)
    if find_source(source) is not None:
        raise InputError(
            f"{source!r} is the name of a dataset, which is read as it is; give a path or a URL."
        )
    made = tp.prepare_interactions(
        source,
        args.output,
        memory=args.memory,
        temp=args.temp,
        test=args.test,
        valid=args.valid,
        seed=args.seed,
        progress=not console.quiet,
        **reading.for_files(),
    )
    facts = {"source": without_password(source), **_facts(made, str(args.output))}
    console.done(f"{described(made)}\nprepared in {args.output}", facts)


def _facts(found: tp.Interactions | tp.Split, folder: str) -> Json:
    parts = found.parts if isinstance(found, tp.Split) else {"all": found}
    first = next(iter(parts.values()))
    return {
        "folder": folder,
        "users": first.n_users,
        "items": first.n_items,
        "pairs": {name: len(part) for name, part in parts.items()},
        "hash": {name: part.hash for name, part in parts.items()},
    }
