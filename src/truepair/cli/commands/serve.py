"""`truepair serve`: answer requests for lists over HTTP, and store what users do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, cast

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.cli.sources import kind_numbers
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import is_url
from truepair.errors import InputError, check_choice, check_number, check_whole


@unpacked
def serve(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="A model file saved by `truepair fit`; none with --demo."),
    ] = None,
    *,
    demonstrate: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Serve MovieLens-100k, or a simulated world without it, to simulated visitors. Events go to "
            "a temporary folder unless you give --store.",
        ),
    ] = False,
    data_dir: DataDir = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="A second model file, whose lists the page shows beside the others."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Without tokens, this machine's own alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8000,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Where events, items and users are kept: an SQLite file, or postgresql://user@host/name. "
            "[default: beside the model, .events.sqlite]",
        ),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="One row an item: titles and pictures for the page, and columns for where and quota. "
            "[default: the items of the store]",
        ),
    ] = None,
    feedback: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=NUMBER,…",
            help="The kinds of events and their weights, the default first; below 0 is a dislike. "
            "[default: like=1,dislike=-1]",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='A TOML file with lines such as read = ["TOKEN"], for read, write and admin. '
            "TRUEPAIR_READ_TOKEN and the like are used too.",
        ),
    ] = None,
    retrain: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Train a candidate this often, such as 6h or 30min, and serve it if it is not worse.",
        ),
    ] = None,
    retrain_events: Annotated[
        int | None, typer.Option(help="Train a candidate after this many new events.")
    ] = None,
    retrain_by: Annotated[
        str,
        typer.Option(help="update or fit; auto updates, and fits where much is new."),
    ] = "auto",
    judge_people: Annotated[
        int, typer.Option(help="With fewer users to judge by, a candidate is not trained.")
    ] = 30,
    max_body: Annotated[int, typer.Option(help="The most bytes of a request.")] = 1 << 20,
    max_k: Annotated[int, typer.Option(help="The longest list that may be asked for.")] = 1000,
    max_users: Annotated[int, typer.Option(help="The most users in one request.")] = 1000,
    max_events: Annotated[int, typer.Option(help="The most events in one request.")] = 1000,
    timeout: Annotated[float, typer.Option(help="Seconds until a request is answered, or refused.")] = 30.0,
    gather: Annotated[int, typer.Option(help="The most requests for lists that are computed together.")] = 64,
    index: Annotated[
        str,
        typer.Option(
            help="How lists are searched: exact, ivf, hnsw, or auto: exact up to 200,000 items, ivf above. "
            "An index needs the extra ann."
        ),
    ] = "auto",
    recall: Annotated[
        float,
        typer.Option(help="The share of the exact lists that an index must find, or lists are exact."),
    ] = 0.99,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="The most requests a second for each token, or for each address without tokens. "
            "[default: no limit]",
        ),
    ] = None,
    log_requests: Annotated[
        bool | None,
        typer.Option(
            "--log-requests/--no-log-requests",
            help="Write a line to stderr for each request. [default: yes, but not with --demo]",
            show_default=False,
        ),
    ] = None,
    log_people: Annotated[
        bool, typer.Option("--log-people", help="Log addresses as asked for, with ids of users and items.")
    ] = False,
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
    from truepair.serving.page.adding import add_page
    from truepair.serving.retraining.rounds import RetrainingPlan, check_retrainable
    from truepair.serving.retraining.schedule import Schedule
    from truepair.serving.retraining.versions import Versions
    from truepair.serving.web.app import Service
    from truepair.serving.web.monitoring import RequestLog
    from truepair.serving.web.retraining import AutomaticRetraining
    from truepair.serving.web.running import bound_socket, run
    from truepair.serving.web.tokens import Tokens, check_binding

    check_whole("--port", port, 0, 65535)
    check_whole("--gather", gather, 1)
    sizes = {"--max-body": max_body, "--max-k": max_k, "--max-users": max_users, "--max-events": max_events}
    for name, size in sizes.items():
        check_whole(name, size, 1)
    check_number("--timeout", timeout, 0, open_low=True)
    check_number("--recall", recall, 0, 1, open_low=True)
    if rate is not None:
        check_number("--rate", rate, 0, 1e6, open_low=True)
    check_choice("--index", index, CHOICES)
    limits = Limits(body=max_body, k=max_k, users=max_users, events=max_events, seconds=timeout)
    known, kinds = Tokens.read(tokens), Kinds(kind_numbers(feedback) or Kinds().numbers)
    check_binding(host, known)
    _check_demo(demonstrate, {"MODEL": model, "--items": items, "--beside": beside}, data_dir)
    with _scratch(demonstrate) as folder:
        demo = None if folder is None else demo_files(folder, data_dir)
        if demo is not None:
            console.say(demo.note)
            model, items, beside = demo.model, str(demo.items), demo.beside
        assert model is not None
        place = str(model.with_suffix(".events.sqlite")) if store is None else store
        if not is_url(place):
            if Path(place).resolve() == model.resolve():
                raise InputError(f"--store {place} is the model; give another file.")
            check_output(Path(place))
        choice = IndexChoice(index, recall, model.with_suffix(".index"), console.say)
        schedule = Schedule.of(retrain, retrain_events)
        plan = RetrainingPlan(str(model), place, dict(kinds.numbers), cast(Any, retrain_by), judge_people)
        versions = Versions(model)
        state = versions.open()
        fitted = Recommender.load(versions.path(state.current))
        if retrain is not None or retrain_events is not None:
            check_retrainable(fitted)
        table = None if items is None else read_items(items, fitted.seen_.item_ids)
        second = None if beside is None else (beside.name, Recommender.load(beside))
        visitors = None if demo is None else Visitors(demo.future)
        if visitors is not None:
            known = visitors.with_token(known)
        log = RequestLog(requests=demo is None if log_requests is None else log_requests, with_ids=log_people)
        with bound_socket(host, port, known) as listening:
            service = Service(
                fitted, place, items=table, kinds=kinds, tokens=known, limits=limits, log=log,
                gathered=gather, name=model.name, index=choice, rate=rate,
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

            run(service.application(), listening, limits, log, ready)
        console.say("stopped")


def _check_demo(demonstrate: bool, given: dict[str, object], data_dir: Path | None) -> None:
    """Raise unless there is either a model or the demo, and nothing without effect."""
    if not demonstrate and given["MODEL"] is None:
        raise InputError("there is no MODEL; give a model file saved by `truepair fit`, or --demo.")
    if not demonstrate and data_dir is not None:
        raise InputError(f"--data-dir {data_dir} has no effect without --demo; leave it out.")
    for name, value in given.items():
        if demonstrate and value is not None:
            raise InputError(f"{name} {value} has no effect with --demo, which brings its own; leave it out.")


@contextmanager
def _scratch(demonstrate: bool) -> Iterator[Path | None]:
    """A folder for the files of the demo, which is removed in the end."""
    if not demonstrate:
        yield None
        return
    with TemporaryDirectory(prefix="truepair-demo-") as folder:
        yield Path(folder)
