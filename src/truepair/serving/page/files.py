"""Files of the page: public, as no data is in them, and under a policy that lets nothing else run."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from truepair.serving.refusals import RefusalError
from truepair.serving.web.routes import Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Scripts and styles of the page's own files alone; pictures from elsewhere, as item tables name them."""
_HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

ROUTES = [
    Route("GET", "/", "page", None, "The page.", {"type": "string"}, listed=False),
    Route("GET", "/page/{name}", "page_file", None, "A file of the page.", {"type": "string"}, listed=False),
]


class PageFiles:
    """The files of the package, read once; no other name is served."""

    def __init__(self) -> None:
        folder = files("truepair.serving.page") / "static"
        self.contents = {
            file.name: file.read_bytes()
            for file in folder.iterdir()
            if file.is_file() and f".{file.name.rpartition('.')[2]}" in _KINDS
        }

    async def answer_page(self, request: Request, body: dict[str, Any]) -> Response:
        """The page itself."""
        return self._file("index.html")

    async def answer_page_file(self, request: Request, body: dict[str, Any]) -> Response:
        """A script, a style, the icon."""
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        if name not in self.contents:
            raise RefusalError(404, f"the page has no file {name!r:.60}.")
        kind = _KINDS[f".{name.rpartition('.')[2]}"]
        return Response(self.contents[name], headers=_HEADERS, media_type=kind)
