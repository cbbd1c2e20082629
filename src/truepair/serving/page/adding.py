"""Adding the page to a service: its files, and the routes that it asks."""

from __future__ import annotations

from truepair.recommender.estimator import Recommender
from truepair.serving.page import browsing, files
from truepair.serving.web.app import Service


def add_page(service: Service, beside: tuple[str, Recommender] | None = None) -> None:
    """Add the page; `beside` is the name and the model of a second list for each user."""
    service.routers.append(browsing.Browsing(service, beside).router())
    service.routers.append(files.PageFiles().router(service.gate))
