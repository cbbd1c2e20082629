"""`truepair serve`: answer requests for lists over HTTP, and store what people do."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.cli.sources import kind_numbers
from truepair.cli.table_files import check_output
from truepair.errors import InputError, check_number, check_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.recommender.estimator import Recommender
    from truepair.serving.demo.visitors import Visitors
    from truepair.serving.web.tokens import Tokens


@unpacked
def serve(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="A model file saved by `truepair fit`; none with --demo."),
    ] = None,
    *,
    demo: Annotated[
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
        Path | None,
        typer.Option(help="The SQLite file of the events. [default: beside the model, .events.sqlite]"),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="One row an item: titles and pictures for the page, and columns for where and quota.",
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
    max_body: Annotated[int, typer.Option(help="The most bytes of a request.")] = 1 << 20,
    max_k: Annotated[int, typer.Option(help="The longest list that may be asked for.")] = 1000,
    max_users: Annotated[int, typer.Option(help="The most people in one request.")] = 1000,
    max_events: Annotated[int, typer.Option(help="The most events in one request.")] = 1000,
    timeout: Annotated[float, typer.Option(help="Seconds until a request is answered, or refused.")] = 30.0,
    gather: Annotated[int, typer.Option(help="The most requests for lists that are computed together.")] = 64,
    log_requests: Annotated[
        bool | None,
        typer.Option(
            "--log-requests/--no-log-requests",
            help="Write a line to stderr for each request. [default: yes, but not with --demo]",
            show_default=False,
        ),
    ] = None,
    log_people: Annotated[
        bool, typer.Option("--log-people", help="Log addresses as asked for, with ids of people and items.")
    ] = False,
    console: Console,
) -> None:
    """Serve a model over HTTP, with what people did a second ago.

    The page at / shows people, items, the model and the service. GET /openapi.json describes all requests.
    Ctrl-C and SIGTERM finish what is running, then stop.
    """
    from truepair.serving import check_extra

    check_extra()
    from truepair.serving.events.event import Kinds
    from truepair.serving.limits import Limits
    from truepair.serving.page.adding import add_page
    from truepair.serving.web.app import Service
    from truepair.serving.web.logs import Log
    from truepair.serving.web.running import bound_socket, run
    from truepair.serving.web.tokens import Tokens, check_binding

    check_whole("--port", port, 0, 65535)
    check_whole("--gather", gather, 1)
    sizes = {"--max-body": max_body, "--max-k": max_k, "--max-users": max_users, "--max-events": max_events}
    for name, size in sizes.items():
        check_whole(name, size, 1)
    check_number("--timeout", timeout, 0, open_low=True)
    limits = Limits(body=max_body, k=max_k, users=max_users, events=max_events, seconds=timeout)
    known, kinds = Tokens.read(tokens), Kinds(kind_numbers(feedback) or Kinds().numbers)
    check_binding(host, known)
    with TemporaryDirectory(prefix="truepair-demo-") if demo else nullcontext("") as scratch:
        chosen = (
            _demo(model, items, beside, data_dir, Path(scratch), console)
            if demo
            else _given(model, items, beside, data_dir)
        )
        path = chosen.store if store is None else store
        if model is not None and path.resolve() == model.resolve():
            raise InputError(f"--store {path} is the model; give another file.")
        check_output(path)
        visitors, known = _visitors(chosen.future, known)
        log = Log(requests=not demo if log_requests is None else log_requests, people=log_people)
        with bound_socket(host, port, known) as listening:
            service = Service(
                chosen.model, path, items=chosen.items, kinds=kinds, tokens=known, limits=limits, log=log,
                gathered=gather, name=chosen.name,
            )  # fmt: skip
            add_page(service, chosen.beside)
            seen, n_events = chosen.model.seen_, service.reader.count()
            console.say(f"{seen.n_users:,} users, {seen.n_items:,} items; {n_events:,} events in {path}")

            def ready(address: str) -> None:
                console.say(f"serving {chosen.what} at {address}")
                if visitors is not None:
                    visitors.start(address)
                    service.closing.append(visitors.stop)

            run(service.application(), listening, limits, log, ready)
        console.say("stopped")


class _Chosen(NamedTuple):
    """What is served."""

    what: str
    name: str  # of the model
    model: Recommender
    items: pa.Table | None
    beside: tuple[str, Recommender] | None
    store: Path
    future: Sequence[tuple[Any, Any, str]] = ()


def _given(model: Path | None, items: str | None, beside: Path | None, data_dir: Path | None) -> _Chosen:
    from truepair.recommender.estimator import Recommender
    from truepair.serving.lists.served_model import read_items

    if model is None:
        raise InputError("there is no MODEL; give a model file saved by `truepair fit`, or --demo.")
    if data_dir is not None:
        raise InputError(f"--data-dir {data_dir} has no effect without --demo; leave it out.")
    fitted = Recommender.load(model)
    table = None if items is None else read_items(items, fitted.seen_.item_ids)
    second = None if beside is None else (beside.name, Recommender.load(beside))
    return _Chosen(str(model), model.name, fitted, table, second, model.with_suffix(".events.sqlite"))


def _demo(
    model: Path | None,
    items: str | None,
    beside: Path | None,
    data_dir: Path | None,
    folder: Path,
    console: Console,
) -> _Chosen:
    from truepair.serving.demo.world import demo_models, demo_world
    from truepair.serving.lists.served_model import read_items

    for name, value in {"MODEL": model, "--items": items, "--beside": beside}.items():
        if value is not None:
            raise InputError(f"{name} {value} has no effect with --demo, which brings its own; leave it out.")
    world = demo_world(data_dir)
    console.say(world.note)
    first, second = demo_models(world)
    table = read_items(world.items, first.seen_.item_ids)
    store = folder / "events.sqlite"
    return _Chosen(world.name, "Default model", first, table, ("EASE", second), store, world.future)


def _visitors(future: Sequence[tuple[Any, Any, str]], tokens: Tokens) -> tuple[Visitors | None, Tokens]:
    """Those of the demo; where tokens are needed, they get one that nobody else knows."""
    from truepair.serving.demo.visitors import Visitors

    if not future:
        return None, tokens
    if not tokens:
        return Visitors(future), tokens
    token = secrets.token_urlsafe(32)
    return Visitors(future, token=token), tokens.with_one("admin", token)
