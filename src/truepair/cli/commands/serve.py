"""`truepair serve`, `export`, `import` and `rollback`: lists over HTTP; a service's store and model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, cast

import typer

import truepair as tp
from truepair.cli.console import Console
from truepair.cli.options import DataDir, ModelFile, argument, option, refuse
from truepair.cli.sources import kind_numbers
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import is_url
from truepair.errors import InputError, check_number


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of `serve`."""

    model: Path | None = argument("A model file saved by `truepair fit`; none with --demo.", "[MODEL]")
    demonstrate: bool = option("Serve a public dataset to simulated visitors.", "--demo", default=False)
    data_dir: DataDir = None
    beside: Path | None = option("A second model, whose lists the page shows too.", metavar="MODEL")
    host: str = option("The address to listen on. Without tokens, only this machine's.", default="127.0.0.1")
    port: int = option("The port; 0 takes a free one.", default=8000, min=0, max=65535)
    store: str | None = option(
        "Where events, items and users are kept: an SQLite file, or postgresql://user@host/name. [default: "
        "beside the model, .events.sqlite]",
        metavar="FILE|URL",
    )
    items: str | None = option(
        "Titles, pictures and columns of items, a row each. [default: those of the store]", metavar="TABLE"
    )
    feedback: str | None = option(
        "The kinds of events and their weights, the default first; below 0 is a dislike. [default: those "
        "that the model was fitted with; else like=1,dislike=-1]",
        metavar="KIND=NUMBER,…",
    )
    tokens: Path | None = option(
        'A TOML file: read = ["TOKEN"], write, admin; or set TRUEPAIR_READ_TOKEN and such.', metavar="FILE"
    )
    retrain: str | None = option(
        "Train a candidate this often, such as 6h or 30min, and serve it if it is not worse.", metavar="TIME"
    )
    retrain_events: int | None = option("Train a candidate after this many new events.")
    retrain_by: str = option("update or fit; auto updates, and fits where much is new.", default="auto")
    judge_people: int = option("Train candidates only with this many users to judge by.", default=30)
    judge_margin: float = option(
        "Serve a candidate only if it loses less than this share of the served model's score.", default=0.02
    )
    max_body: int = option("The most bytes of a request.", default=1 << 20, min=1)
    max_k: int = option("The longest list of a request.", default=1000, min=1)
    max_users: int = option("The most users in one request.", default=1000, min=1)
    max_events: int = option("The most events in one request.", default=1000, min=1)
    timeout: float = option("Seconds until a request is answered, or refused.", default=30.0)
    gather: int = option("The most requests for lists that are computed together.", default=64, min=1)
    index: str = option("exact, ivf (needs the extra ann), or auto: ivf above 200,000 items.", default="auto")
    recall: float = option("The recall that an index must reach; otherwise lists are exact.", default=0.99)
    rate: float | None = option(
        "The most requests a second of a token, or of an address without. [default: no limit]", metavar="N"
    )
    log_requests: bool | None = option("A line to stderr for each request. [default: unless --demo]")
    log_people: bool = option("Log requests with the ids of users and items.", "--log-people", default=False)


def serve(args: ServeOptions, console: Console) -> None:
    """Serve a model over HTTP, including events from seconds ago.

    The page at / shows users, items, the model and the service. GET /openapi.json describes all requests.
    Ctrl-C and SIGTERM finish what is running, then stop.

    With --demo it serves MovieLens-100k, or a simulated dataset if it cannot be downloaded. Events go to a
    temporary folder unless you give --store.

    Example:
      truepair serve model.truepair --port 8000 --items items.csv
      truepair serve model.truepair --retrain 6h
      truepair serve --demo
    """
    from truepair.serving import check_extra

    check_extra()
    from truepair.ranking.approximate.indexing import IndexChoice
    from truepair.serving.demo.visitors import Visitors
    from truepair.serving.demo.world import demo_files, demo_world
    from truepair.serving.events.event import Kinds
    from truepair.serving.limits import Limits
    from truepair.serving.lists.served_model import read_items
    from truepair.serving.page.browsing import add_page
    from truepair.serving.retraining.rounds import RetrainingPlan, check_retrainable
    from truepair.serving.retraining.schedule import Schedule
    from truepair.serving.retraining.versions import Versions
    from truepair.serving.web.app import Service
    from truepair.serving.web.guard import RequestLog
    from truepair.serving.web.retraining import AutomaticRetraining
    from truepair.serving.web.running import bound_socket, run
    from truepair.serving.web.tokens import Tokens, check_binding

    check_number("--timeout", args.timeout, 0, open_low=True)
    limits = Limits(
        body=args.max_body, k=args.max_k, users=args.max_users, events=args.max_events, seconds=args.timeout
    )
    known = Tokens.read(args.tokens)
    given = None if args.feedback is None else Kinds(kind_numbers(args.feedback))
    check_binding(args.host, known)
    if args.demonstrate:
        own = {"MODEL": args.model, "--items": args.items, "--beside": args.beside}
        refuse(own, "with --demo, which brings its own")
    else:
        refuse({"--data-dir": args.data_dir}, "without --demo")
        if args.model is None:
            raise InputError("there is no MODEL; give a model file saved by `truepair fit`, or --demo.")
    with TemporaryDirectory(prefix="truepair-demo-") if args.demonstrate else nullcontext() as folder:
        model, demo = args.model, None if folder is None else demo_world(args.data_dir)
        if folder is not None and demo is not None:
            found = demo_files(Path(folder), demo)
            console.say(demo.note)
            model, args = found.model, replace(args, items=str(found.items), beside=found.beside)
        assert model is not None
        place = str(model.with_suffix(".events.sqlite")) if args.store is None else args.store
        if not is_url(place):
            if Path(place).resolve() == model.resolve():
                raise InputError(f"--store {place} is the model; give another file.")
            check_output(Path(place))
        choice = IndexChoice(args.index, args.recall, model.with_suffix(".index"), console.say)
        schedule = Schedule.of(args.retrain, args.retrain_events)
        by = cast(Literal["auto", "update", "fit"], args.retrain_by)
        versions = Versions(model)
        state = versions.open()
        fitted = tp.Recommender.load(versions.path(state.current))
        if args.retrain is not None or args.retrain_events is not None:
            check_retrainable(fitted, by)
        table = None if args.items is None else read_items(args.items, fitted.seen_.item_ids)
        second = None if args.beside is None else (args.beside.name, tp.Recommender.load(args.beside))
        visitors = None if demo is None else Visitors(demo.future)
        if visitors is not None:
            known = visitors.with_token(known)
        log = RequestLog(
            requests=demo is None if args.log_requests is None else args.log_requests,
            with_ids=args.log_people,
        )
        with bound_socket(args.host, args.port, known) as listening:
            service = Service(
                fitted, place, items=table, kinds=given, tokens=known, limits=limits, log=log,
                gathered=args.gather, name=model.name, index=choice, rate=args.rate,
            )  # fmt: skip
            service.served.version = state.current
            kinds = dict(service.kinds.numbers)
            plan = RetrainingPlan(str(model), place, kinds, by, args.judge_people, args.judge_margin)
            retraining = AutomaticRetraining(service, versions, plan, schedule)
            add_page(service, second)
            seen, n_events = fitted.seen_, service.reader.count()
            console.say(
                f"{seen.n_users:,} users, {seen.n_items:,} items; {n_events:,} events in {service.store.name}"
            )
            console.say(service.served.indexing.about)
            if state.current:
                console.say(f"version {state.current} of the model, from {versions.folder}")
            retraining.start()

            def ready(address: str) -> None:
                console.say(f"serving {model if demo is None else demo.name} at {address}")
                if visitors is not None:
                    visitors.start(address)
                    service.closing.append(visitors.stop)

            run(service, listening, ready)
        console.say("stopped")


StorePlace = Annotated[
    str, typer.Argument(metavar="STORE", help="An SQLite file of `truepair serve`, or postgresql://…")
]
_EVERY = 2.0  # seconds between lines of progress


def export(
    store: StorePlace,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; new or empty.")],
    console: Console,
) -> None:
    """Write a store to a folder of Parquet files.

    events.parquet, items.parquet and users.parquet are of one moment, and the folder appears
    when all are written. A service may go on meanwhile.

    Example:
      truepair export model.events.sqlite -o backup
    """
    from truepair.serving.events.store import open_store
    from truepair.serving.transfer.exporting import export_store

    with closing(open_store(store, create=False)) as found, closing(found.reader()) as reader:
        counts = export_store(reader, out, progress(console))
    text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    console.done(f"{text} written to {out}", {"out": str(out), **counts})


def progress(console: Console) -> Callable[[str, int], None]:
    """A function that says every few seconds how many rows are done."""
    last = time.monotonic()

    def done(name: str, count: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            console.say(f"{count:,} {name}")

    return done


def import_files(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... STORE",
            help="Folders of `truepair export`, files (Parquet, CSV …) or URL#table; then the store.",
        ),
    ],
    *,
    kind: Annotated[str, typer.Option(help="The kind of events in tables without such a column.")] = "like",
    missing: Annotated[str, typer.Option(help="Rows that miss a value: error, drop.")] = "error",
    console: Console,
) -> None:
    """Put events, items and users into a store, all of them or none.

    Tables with columns for user and item have events; those with items or users alone have their records, and
    further columns become labels. What is there is not stored again, so that the same import a second time
    changes nothing. Services cannot write to the store meanwhile.

    Example:
      truepair import backup postgresql://ann@localhost/shop
      truepair import clicks.csv items.csv shop.sqlite
    """
    from truepair.serving.events.store import open_store
    from truepair.serving.transfer import importing

    if len(sources) < 2:
        raise InputError("give what to import, and the store at the end: truepair import backup shop.sqlite")
    *found, place = sources
    if not 0 < len(kind) <= 128:
        raise InputError(f"--kind = {kind!r:.60} cannot be used; give 1 to 128 characters.")
    with closing(open_store(place)) as store:
        counts = importing.import_files(store, found, kind, progress(console), missing)
    rows = [f"{read:,} {name} read, {changed:,} new or changed" for name, (read, changed) in counts.items()]
    text = "; ".join(rows) or "nothing to import"
    data = {name: {"read": read, "changed": changed} for name, (read, changed) in counts.items()}
    console.done(f"{text} in {store.name}", {"store": store.name, **data})


def rollback(model: ModelFile, *, console: Console) -> None:
    """Return to the former model of a service that retrains.

    Running services follow within about a second. The model file itself is version 0.

    Example:
      truepair rollback model.truepair
    """
    from truepair.serving import check_extra

    check_extra()
    from truepair.serving.retraining.versions import Versions

    versions = Versions(model)
    before = versions.state().current
    state = versions.roll_back()
    found = {"version": state.current, "was": before, "file": str(versions.path(state.current))}
    console.done(f"version {state.current} is served from now on, no longer version {before}", found)
