"""`truepair serve`: answer requests for lists over HTTP, and store what users do."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, cast

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, option, option_name, refuse, unpacked
from truepair.cli.sources import kind_numbers
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import is_url
from truepair.errors import InputError, check_choice, check_number, check_whole


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of `serve`."""

    demonstrate: bool = option(
        "Serve MovieLens-100k, or a simulated world without it, to simulated visitors. Events go to a "
        "temporary folder unless you give --store.",
        "--demo",
        default=False,
    )
    data_dir: DataDir = None
    beside: Path | None = option(
        "A second model file, whose lists the page shows beside the others.", metavar="MODEL"
    )
    host: str = option(
        "The address to listen on. Without tokens, this machine's own alone.", default="127.0.0.1"
    )
    port: int = option("The port; 0 takes a free one.", default=8000)
    store: str | None = option(
        "Where events, items and users are kept: an SQLite file, or postgresql://user@host/name. [default: "
        "beside the model, .events.sqlite]",
        metavar="FILE|URL",
    )
    items: str | None = option(
        "One row an item: titles and pictures for the page, and columns for where and quota. [default: the "
        "items of the store]",
        metavar="TABLE",
    )
    feedback: str | None = option(
        "The kinds of events and their weights, the default first; below 0 is a dislike. [default: "
        "like=1,dislike=-1]",
        metavar="KIND=NUMBER,…",
    )
    tokens: Path | None = option(
        'A TOML file with lines such as read = ["TOKEN"], for read, write and admin. TRUEPAIR_READ_TOKEN '
        "and the like are used too.",
        metavar="FILE",
    )
    retrain: str | None = option(
        "Train a candidate this often, such as 6h or 30min, and serve it if it is not worse.", metavar="TIME"
    )
    retrain_events: int | None = option("Train a candidate after this many new events.")
    retrain_by: str = option("update or fit; auto updates, and fits where much is new.", default="auto")
    judge_people: int = option("With fewer users to judge by, a candidate is not trained.", default=30)
    max_body: int = option("The most bytes of a request.", default=1 << 20)
    max_k: int = option("The longest list that may be asked for.", default=1000)
    max_users: int = option("The most users in one request.", default=1000)
    max_events: int = option("The most events in one request.", default=1000)
    timeout: float = option("Seconds until a request is answered, or refused.", default=30.0)
    gather: int = option("The most requests for lists that are computed together.", default=64)
    index: str = option(
        "How lists are searched: exact, ivf, or auto: exact up to 200,000 items, ivf above. An index "
        "needs the extra ann.",
        default="auto",
    )
    recall: float = option(
        "The share of the exact lists that an index must find, or lists are exact.", default=0.99
    )
    rate: float | None = option(
        "The most requests a second for each token, or for each address without tokens. [default: no limit]",
        metavar="N",
    )
    log_requests: bool | None = option(
        "Write a line to stderr for each request. [default: yes, but not with --demo]",
        "--log-requests/--no-log-requests",
        show_default=False,
    )
    log_people: bool = option(
        "Log addresses as asked for, with ids of users and items.", "--log-people", default=False
    )


@unpacked
def serve(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="A model file saved by `truepair fit`; none with --demo."),
    ] = None,
    *,
    args: ServeOptions,
    console: Console,
) -> None:
    """Serve a model over HTTP, including events from seconds ago.

    The page at / shows users, items, the model and the service. GET /openapi.json describes all requests.
    Ctrl-C and SIGTERM finish what is running, then stop.
    """
    from truepair.serving import check_extra

    check_extra()
    from truepair.recommender.estimator import Recommender
    from truepair.serving.demo.files import demo_files
    from truepair.serving.demo.visitors import Visitors
    from truepair.serving.events.event import Kinds
    from truepair.serving.limits import Limits
    from truepair.serving.lists.index_choice import CHOICES, IndexChoice
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

    _check_numbers(args)
    check_choice("--index", args.index, CHOICES)
    limits = Limits(
        body=args.max_body, k=args.max_k, users=args.max_users, events=args.max_events, seconds=args.timeout
    )
    known = Tokens.read(args.tokens)
    kinds = Kinds() if args.feedback is None else Kinds(kind_numbers(args.feedback))
    check_binding(args.host, known)
    _check_demo(model, args)
    with TemporaryDirectory(prefix="truepair-demo-") if args.demonstrate else nullcontext() as folder:
        demo = None if folder is None else demo_files(Path(folder), args.data_dir)
        if demo is not None:
            console.say(demo.note)
            model, args = demo.model, replace(args, items=str(demo.items), beside=demo.beside)
        assert model is not None
        place = _store_place(model, args.store)
        choice = IndexChoice(args.index, args.recall, model.with_suffix(".index"), console.say)
        schedule = Schedule.of(args.retrain, args.retrain_events)
        by = cast(Literal["auto", "update", "fit"], args.retrain_by)
        plan = RetrainingPlan(str(model), place, dict(kinds.numbers), by, args.judge_people)
        versions = Versions(model)
        state = versions.open()
        fitted = Recommender.load(versions.path(state.current))
        if args.retrain is not None or args.retrain_events is not None:
            check_retrainable(fitted)
        table = None if args.items is None else read_items(args.items, fitted.seen_.item_ids)
        second = None if args.beside is None else (args.beside.name, Recommender.load(args.beside))
        visitors = None if demo is None else Visitors(demo.future)
        if visitors is not None:
            known = visitors.with_token(known)
        log = RequestLog(
            requests=demo is None if args.log_requests is None else args.log_requests,
            with_ids=args.log_people,
        )
        with bound_socket(args.host, args.port, known) as listening:
            service = Service(
                fitted, place, items=table, kinds=kinds, tokens=known, limits=limits, log=log,
                gathered=args.gather, name=model.name, index=choice, rate=args.rate,
            )  # fmt: skip
            service.served.version = state.current
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


def _check_numbers(args: ServeOptions) -> None:
    check_whole("--port", args.port, 0, 65535)
    for name in ("gather", "max_body", "max_k", "max_users", "max_events"):
        check_whole(option_name(name), getattr(args, name), 1)
    check_number("--timeout", args.timeout, 0, open_low=True)
    check_number("--recall", args.recall, 0, 1, open_low=True)
    if args.rate is not None:
        check_number("--rate", args.rate, 0, 1e6, open_low=True)


def _check_demo(model: Path | None, args: ServeOptions) -> None:
    """Raise unless there is either a model or the demo, and nothing without effect."""
    if args.demonstrate:
        own = {"MODEL": model, "--items": args.items, "--beside": args.beside}
        refuse(own, "with --demo, which brings its own")
        return
    refuse({"--data-dir": args.data_dir}, "without --demo")
    if model is None:
        raise InputError("there is no MODEL; give a model file saved by `truepair fit`, or --demo.")


def _store_place(model: Path, store: str | None) -> str:
    """The file or the URL of the store."""
    place = str(model.with_suffix(".events.sqlite")) if store is None else store
    if not is_url(place):
        if Path(place).resolve() == model.resolve():
            raise InputError(f"--store {place} is the model; give another file.")
        check_output(Path(place))
    return place
