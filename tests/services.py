"""A small model and a service of it, as fixtures that the tests of the service import."""

import io

import pytest

import truepair as tp
from asking import Client
from truepair.serving.web.app import Service
from truepair.serving.web.guard import RequestLog
from worlds import two_tastes


def table_of(pairs, name=str):
    rows = zip(pairs.users.tolist(), pairs.items.tolist(), strict=True)
    users, items = zip(*rows, strict=True)
    return {"user": [name(f"u{u}") for u in users], "item": [name(f"i{i}") for i in items]}


def integer(text):
    return int(text[1:])


@pytest.fixture(scope="session")
def clicks():
    """20 people, 24 items with ids such as "u3" and "i10"."""
    return table_of(two_tastes(20, 24, 5))


@pytest.fixture(scope="session")
def model(clicks):
    return tp.Recommender(dim=6, epochs=4, auto=False).fit(clicks)


@pytest.fixture(scope="session")
def integer_model():
    return tp.Recommender(dim=4, epochs=2, auto=False).fit(table_of(two_tastes(12, 16, 4), integer))


@pytest.fixture
def serve(tmp_path):
    """A function that gives a client of a service; all are closed in the end."""
    services = []

    def start(model, store="events.sqlite", prepare=lambda service: None, **options):
        service = Service(
            model,
            store if "://" in store else tmp_path / store,
            **{"log": RequestLog(io.StringIO()), **options},
        )
        services.append(service)
        prepare(service)
        return Client(service)

    yield start
    for service in services:
        service.close()
